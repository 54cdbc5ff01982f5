"""`corpusmill fairness`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.common.jsonl import read_jsonl
from corpusmill.train.commands.options import Json, Run, Set, print_json, print_table
from corpusmill.train.commands.results import write_page

if TYPE_CHECKING:
    from corpusmill.schemas.fairness import FairnessResults, Figure


def fairness(
    run: Run,
    terms: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="groups, terms and sentences (.yaml) [configs/fairness/terms.yaml]"
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="JSONL with `text` and `group`, such as dialects: bits per byte of each"
        ),
    ] = None,
    source_tokens: Annotated[
        int, typer.Option(min=0, help="of each validation split that are scored at most; 0: none")
    ] = 1_000_000,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="JSONL with `prompt` and perhaps `group`, to continue [those of the terms]"
        ),
    ] = None,
    prompts_per_group: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="prompts of each group that are continued, spread evenly; 0: all [4; all of --prompts]",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="continuations of a prompt; 0: no toxicity")] = 25,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="from which a continuation is toxic")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="of the continuations")] = 0,
    occupations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TSV with `occupation` and `bls_pct_female`, as of winogender-schemas, to compare Winogender with",
        ),
    ] = None,
    classifier: Annotated[
        str | None, typer.Option(metavar="MODEL", help="fastText model for toxicity [the shipped one]")
    ] = None,
    label: Annotated[str | None, typer.Option(help="its label for toxic texts")] = None,
    labelled: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="texts with labels to measure the classifier's error on (repeatable) [its card]",
        ),
    ] = None,
    positive: Annotated[list[str] | None, typer.Option(help="of --labelled: labels of toxic texts")] = None,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Bias and fairness of the newest checkpoint: tasks, swapped terms, toxicity of what it generates."""
    from corpusmill.train.evaluate.fairness.fairness import Wanted
    from corpusmill.train.evaluate.fairness.fairness import fairness as work
    from corpusmill.train.evaluate.fairness.terms import read_terms
    from corpusmill.train.evaluate.fairness.toxicity import PER_GROUP, Prompt
    from corpusmill.train.run_folder import open_run

    options = [] if classifier is None else ["--model", classifier]
    options += [] if label is None else ["--label", label]
    for file in labelled or []:
        options += ["--labelled", str(file)]
    for value in positive or []:
        options += ["--positive", value]
    given = None
    if prompts:
        given = [
            Prompt(row["prompt"], row.get("group"))
            for row in read_jsonl(prompts, "prompt", optional=["group"], option="--prompts")
        ]
    if prompts_per_group is None:
        prompts_per_group = PER_GROUP if given is None else 0
    grouped = list(read_jsonl(texts, "text", "group", option="--texts")) if texts else []
    wanted = Wanted(
        read_terms(terms), [(row["text"], row["group"]) for row in grouped], source_tokens, given,
        prompts_per_group, samples, threshold, seed, shares_of_women(occupations) if occupations else {}, options,
    )  # fmt: skip
    config, folder = open_run(run, set_)
    result = work(config, folder, wanted)
    write_page(config, folder)
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    for title, lines in tables(result):
        print_table(lines, title)
    for line in findings(result):
        typer.echo(line)


def shares_of_women(file: Path) -> dict[str, float]:
    """Percent of women by occupation, of a TSV file with a heading."""
    import csv

    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        return {row["occupation"]: float(row["bls_pct_female"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--occupations {file}: not a TSV with the columns occupation and bls_pct_female: {error}"
        ) from None


def tables(result: FairnessResults) -> list[tuple[str, list[list[str]]]]:
    """Titles and rows of what is printed."""
    from corpusmill.train.evaluate.resampling import shown

    found = []
    for name, task in result.tasks.items():
        lines = [["figure", "value", "by chance"]]
        lines += [_row(key, figure) for key, figure in task.overall.items()]
        if task.kind != "winogender":  # whose occupations have too few sentences each
            lines += [
                _row(f"{value}: {key}", figure)
                for value, figures in task.slices.items()
                for key, figure in figures.items()
            ]
        found.append((f"{name} ({task.kind}), {task.items:,} items", lines))
    if result.terms:
        lines = [["groups", "bits per byte", "less the others", "after the term"]]
        for name, axis in result.terms.items():
            for group, value in axis.whole.groups.items():
                after = "" if axis.after is None else shown(axis.after.against_others[group])
                lines.append(
                    [f"{name}: {group}", shown(value), shown(axis.whole.against_others[group]), after]
                )
        found.append(("Sentences with swapped terms, 95 % intervals over templates", lines))
    for title, groups in (
        ("Documents of the validation splits, by source", result.sources),
        ("Texts by group", result.texts),
    ):
        if groups:
            lines = [["group", "texts", "bits per byte"]]
            lines += [[name, f"{one.texts:,}", shown(one.bits_per_byte)] for name, one in groups.items()]
            found.append((title, lines))
    if result.toxicity:
        toxic = result.toxicity
        lines = [
            [
                "group",
                "prompts",
                "mean",
                "expected maximum",
                f"any >= {toxic.threshold:g}",
                "less that of the prompt",
            ]
        ]
        for name, part in {"all": toxic.overall, **toxic.groups}.items():
            lines.append(
                [name, f"{part.prompts:,}", shown(part.mean), shown(part.expected_maximum), shown(part.any_above), shown(part.amplification)]
            )  # fmt: skip
        of = "" if toxic.available is None else f" ({toxic.overall.prompts:,} of {toxic.available:,} prompts)"
        title = f"Toxicity of {toxic.samples} continuations of each prompt{of}, 95 % intervals"
        found.append((title, lines))
    return found


def _row(name: str, figure: Figure) -> list[str]:
    from corpusmill.train.evaluate.resampling import shown

    return [name, shown(figure.estimate), "" if figure.chance is None else f"{figure.chance:.3g}"]


def findings(result: FairnessResults) -> list[str]:
    """Everything that the figures show, in words."""
    lines = [f"{name}: {line}" for name, task in result.tasks.items() for line in task.findings]
    lines += [axis.finding for axis in result.terms.values()]
    if result.toxicity:
        lines.append(f"toxicity: {result.toxicity.finding}")
    if lines:
        lines.append("intervals and p values are of each figure by itself, not corrected for their number")
    if not result.tasks:
        lines.append("no items of bias tasks (BBQ, CrowS-Pairs, Winogender, WinoBias) in evaluation/items")
    return lines
