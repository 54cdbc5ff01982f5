"""Commands about rules: `signals` (what can be measured on a document, for those who write a rule), `parity` (two rule sets over
the user's own data) and `what-if` (what other thresholds would keep of a finished run)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from corpusmill.common.errors import UserError, nearest
from corpusmill.pipeline.commands.options import (
    Address,
    IdColumn,
    InputFormat,
    Inputs,
    Json,
    Quiet,
    Set,
    TextColumn,
    print_json,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from corpusmill.schemas.tables import SignalSpec

SIGNALS_EXAMPLE: Final = "corpusmill signals --list gopher c4"
WIDTH: Final = 80


def signals(
    families: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FAMILY]...", help="Families to show, such as gopher. [all]"),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the signals; this is the default.")] = True,
    plugin: Annotated[
        list[str] | None,
        typer.Option("--plugin", metavar="FILE", help="A Python file of your own signals; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Every signal that rules may look at: name, type, range, version, unit, origin."""
    found = specs(plugin or [])
    known = sorted({family_of(spec) for spec, _ in found})
    for name in families or []:
        if name not in known:
            raise UserError(
                f"signals: '{name}' is not a family{nearest(name, known)} (allowed: {', '.join(known)})"
            )
    if families:
        found = [(spec, late) for spec, late in found if family_of(spec) in families]
    if json:
        print_json([{**spec.model_dump(mode="json"), "on_demand": late} for spec, late in found])
    else:
        typer.echo(table(found))


def family_of(spec: SignalSpec) -> str:
    """`gopher` of `gopher.word_count`."""
    return spec.name.split(".")[0]


def specs(plugins: list[str]) -> list[tuple[SignalSpec, bool]]:
    """(spec, whether it is measured only where a recipe asks for it, by a rule that looks at it, a set that cuts lines,
    lists of URLs) of all signals, by family; plugins' last."""
    from corpusmill.pipeline.filter.classifiers.scores import SPECS
    from corpusmill.pipeline.filter.lists.url_lists import ORIGIN, SIGNALS
    from corpusmill.pipeline.filter.plugins import load
    from corpusmill.pipeline.filter.quality_signals.scores import SPECS as OVER_SIGNALS
    from corpusmill.pipeline.filter.rules.line_signals import LineRules
    from corpusmill.pipeline.filter.rules.sets import rule_set
    from corpusmill.pipeline.filter.signals.catalogue import every_spec
    from corpusmill.pipeline.filter.signals.registry import ON_DEMAND
    from corpusmill.schemas.filter import rule_sets
    from corpusmill.schemas.tables import SignalSpec

    own = load(plugins)
    on_text = every_spec(own)
    with_lines = {name: rule_set(name).lines for name in rule_sets() if rule_set(name).lines}
    on_urls = [
        SignalSpec(name=name, dtype="int", unit=unit, origin=ORIGIN) for name, unit in SIGNALS.values()
    ]
    given = [*LineRules(with_lines, cuts=True).specs, *on_urls]
    built_in = [*[(spec, spec.name in ON_DEMAND) for spec in on_text if spec.name not in own.measures],
                *[(spec, True) for spec in given], *[(spec, False) for spec in (*SPECS, *OVER_SIGNALS)]]  # fmt: skip
    plugged = [(spec, spec.name in own.on_demand) for spec in on_text if spec.name in own.measures]
    return [*sorted(built_in, key=lambda entry: family_of(entry[0])), *plugged]


def table(found: list[tuple[SignalSpec, bool]]) -> str:
    """The list for a terminal of 80 columns: a line of facts, then what it is and whose definition it follows."""
    lines = [f"{'SIGNAL':<43} {'TYPE':<7} {'RANGE':<14} VERSION"]
    for spec, late in found:
        low, high = ("" if bound is None else f"{bound:g}" for bound in spec.range)
        bounds = f"{low}..{high}" if low or high else "-"
        lines.append(f"{spec.name + ('*' if late else ''):<43} {spec.dtype:<7} {bounds:<14} {spec.version}")
        for text in (spec.unit, spec.origin):
            lines += textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="      ")
    note = "; * measured only where the recipe asks for it" if any(late for _, late in found) else ""
    lines.append(f"{len(found)} signals{note}")
    return "\n".join(lines)


PARITY_EXAMPLE: Final = "corpusmill parity gopher_quality+gopher_repetition gopher@datatrove docs/*.jsonl.gz"

Sets = "A rule set, or several joined by '+': names of sets that ship, or files of your own."


def parity(
    a: Annotated[str, typer.Argument(metavar="A", help=Sets)],
    b: Annotated[str, typer.Argument(metavar="B", help=Sets)],
    input: Inputs,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Compare only the first N documents. [all]")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="Documents to show for each rule.")] = 3,
    format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Where two rule sets disagree on your documents."""
    from corpusmill.common.config import override, validate
    from corpusmill.pipeline.inspect.parity import Parity, shown
    from corpusmill.schemas.recipe import Recipe

    sides = [names.split("+") for names in (a, b)]
    source = {"paths": input, "format": format, "text_column": text_column, "id_column": id_column}
    config: dict[str, Any] = {
        "name": "parity", "sources": {"input": source}, "stages": ["ingest", "filter"],
        "filter": {"rules": list(dict.fromkeys([*sides[0], *sides[1]]))},
    }  # fmt: skip
    recipe = validate(Recipe, override(config, set_ or []), "corpusmill parity")
    found = Parity(sides[0], sides[1], recipe.filter.model_dump(), examples)
    left = limit
    for docs in documents(recipe):
        found.add(docs if left is None else docs.slice(0, left))
        if left is not None:
            left -= len(docs)
            if left <= 0:
                break
    if json:
        print_json(found.as_json())
    else:
        typer.echo(shown(found))


def documents(recipe: Any) -> Iterator[pa.Table]:
    """The documents of a recipe's sources, a partition at a time, as `ingest` reads them; nothing is written.

    Raises `UserError` for a path where nothing is.
    """
    from corpusmill.pipeline.engine.custom import load_stage

    stage: Any = load_stage("ingest", recipe)
    for unit in stage.units():
        for _, outcome, _ in stage.read(unit):
            yield outcome.kept


WHAT_IF_EXAMPLE: Final = (
    "corpusmill what-if recipe.yaml --set filter.thresholds.gopher_quality.word_count_min=30"
)
# Bytes of text: with less of it behind the signals, workers take longer to start than to work.
SMALL: Final = 2 << 30


def what_if(
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe (YAML) that has been run; or give --run.")
    ] = None,
    set_: Set = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="DIR", help="Folder or URL of a run or of filter's output. [the recipe's]"
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, help="Documents to show that would be restored or removed.")
    ] = 5,
    scheduler: Address = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=0, help="Local processes; 0: none. [0 for little text, else cores]"),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What other thresholds would keep: no text is read."""
    from corpusmill.common.config import load, override, validate
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.inspect.what_if.answer import answer, show
    from corpusmill.pipeline.inspect.what_if.question import ask, find_run
    from corpusmill.schemas.recipe import Cluster, Recipe

    if recipe is None and run is None:
        raise UserError("what-if: give a recipe that has been run, or --run DIR")
    if recipe is not None and Path(recipe).is_dir():
        raise UserError(f"what-if: {recipe}: is a folder; for a finished run give --run {recipe}")
    wanted: Any = load(Recipe, recipe, set_) if recipe is not None else None
    finished = find_run(run if run is not None else wanted.output_url)
    if wanted is None:
        wanted = validate(Recipe, override(finished.recipe.model_dump(mode="json"), set_ or []), str(run))
    question = ask(finished, wanted)
    if workers is None and question.text_bytes < SMALL:
        workers = 0
    cluster = Cluster(
        workers=workers, memory_limit=wanted.cluster.memory_limit, retries=wanted.cluster.retries
    )
    with Workers(cluster, scheduler, Progress(quiet=quiet)) as tasks:
        found = answer(question, tasks, examples)
    if json:
        print_json(found)
    else:
        typer.echo(show(found))
