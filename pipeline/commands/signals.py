"""`corpusmill signals`: what can be measured on a document, for whoever writes a rule."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Final

import typer

from corpusmill.pipeline.commands.options import Json, print_json

if TYPE_CHECKING:
    from corpusmill.schemas.documents import SignalSpec

EXAMPLE: Final = "corpusmill signals --list gopher c4"
WIDTH: Final = 80


def signals(
    families: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FAMILY]...", help="Families to show, such as gopher. [all]"),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List them: what is done without it, too.")] = True,
    plugin: Annotated[
        list[str] | None,
        typer.Option("--plugin", metavar="FILE", help="A Python file of your own signals; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Every signal that rules may look at: name, type, range, version, unit, origin."""
    from corpusmill.common.errors import UserError, nearest

    found = specs(plugin or [])
    known = sorted({family_of(spec) for spec, _ in found})
    for name in families or []:
        if name not in known:
            raise UserError(
                f"signals: '{name}' is no family{nearest(name, known)} (allowed: {', '.join(known)})"
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
    from corpusmill.pipeline.filter.lines.measure import LineRules
    from corpusmill.pipeline.filter.plugins import load
    from corpusmill.pipeline.filter.rules.sets import rule_set
    from corpusmill.pipeline.filter.signals.catalogue import every_spec
    from corpusmill.pipeline.filter.signals.registry import ON_DEMAND
    from corpusmill.pipeline.filter.urls.lists import ORIGIN, SIGNALS
    from corpusmill.schemas.documents import SignalSpec
    from corpusmill.schemas.filter import rule_sets

    own = load(plugins)
    on_text = every_spec(own)
    with_lines = {name: rule_set(name).lines for name in rule_sets() if rule_set(name).lines}
    on_urls = [
        SignalSpec(name=name, dtype="int", unit=unit, origin=ORIGIN) for name, unit in SIGNALS.values()
    ]
    given = [*LineRules(with_lines, cuts=True).specs, *on_urls]
    built_in = [*[(spec, spec.name in ON_DEMAND) for spec in on_text if spec.name not in own.measures],
                *[(spec, True) for spec in given], *[(spec, False) for spec in SPECS]]  # fmt: skip
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
    lines.append(f"{len(found)} signals" + ("; * measured only where the recipe asks for it" if any(
        late for _, late in found) else ""))  # fmt: skip
    return "\n".join(lines)
