"""`corpusmill compare-models`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from corpusmill.common.format import quantity
from corpusmill.train.commands.options import Json, print_json, print_table

Also = Annotated[list[str] | None, typer.Option(metavar="RUN", help="a further run that differs in its seed")]


def compare_models(
    a: Annotated[str, typer.Argument(metavar="A", help="folder or URL of an evaluated run")],
    b: Annotated[str, typer.Argument(metavar="B", help="that of another run")],
    also_a: Also = None,
    also_b: Also = None,
    task: Annotated[list[str] | None, typer.Option(help="compare this task alone (repeatable)")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="instead of each task's first metric (repeatable)")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="SLICE", help="split tasks too, by this slice of their items")
    ] = None,
    detect: Annotated[
        float | None, typer.Option(min=1e-9, help="how many items would show this difference")
    ] = None,
    divergence: Annotated[
        bool, typer.Option("--divergence", help="also compute the KL divergence of their next tokens")
    ] = False,
    json_: Json = False,
) -> None:
    """Two evaluated models, item by item: which differences are beyond noise."""
    from corpusmill.train.evaluate.compare.compare import compare_models as work

    found = work([a, *(also_a or [])], [b, *(also_b or [])], task, metric, by, detect)
    if divergence:
        found["divergence"] = of_next_tokens(a, b)
    if json_:
        print_json(found)
        return
    for name in "ab":
        for run in found[name]:
            step = run.get("step", run["split_step"])
            split = (
                f" (bits per byte: of step {run['split_step']})"
                if run["split_step"] not in (None, step)
                else ""
            )
            typer.echo(f"{name.upper()}: {run['run']}, step {step}{split}")
    typer.echo("")
    for rows, first, title in (
        (found["rows"], "task", "Tasks"),
        (found["slices"], "slice", f"By {by}"),
        (found["documents"], "source", "Bits per byte of the validation split"),
    ):
        if rows:
            print_table(table(rows, first), title)
    if divergence:
        print_table(
            [
                ["source", "KL(A||B)", "95 % interval", "KL(B||A)", "95 % interval", "rows"],
                *(divergence_line(name, each) for name, each in found["divergence"].items()),
            ],
            "KL divergence of next tokens, nats a token",
        )
    for line in closing(found):
        typer.echo(line)


def of_next_tokens(a: str, b: str) -> dict[str, Any]:
    """The KL divergences of two runs, by source."""
    from corpusmill.train.evaluate.divergence import between_runs
    from corpusmill.train.run_folder import open_run

    found = between_runs(open_run(a), open_run(b))
    return {name: {way: one.model_dump() for way, one in each.items()} for name, each in found.items()}


def divergence_line(source: str, each: dict[str, Any]) -> list[str]:
    """A line of the table of divergences."""
    cells = [[f"{each[way]['value']:.4f}", interval(each[way], "")] for way in ("a_b", "b_a")]
    return [source, *cells[0], *cells[1], f"{each['a_b']['n']:,}"]


def table(rows: list[dict[str, Any]], first: str) -> list[list[str]]:
    """Heading and a line for each row."""
    names = ["task", "slice"] if first == "slice" else [first]
    heading = [
        *names, "metric", "n", "A", "B", "B - A", "95 % interval", "p (Holm)", "beyond noise", "detectable",
    ]  # fmt: skip
    needed = any("items_needed" in row for row in rows)
    lines = [[*heading, "items needed"] if needed else heading]
    for row in rows:
        d = row["difference"]
        cells = [
            *(row[name] for name in names), row["metric"], f"{d['n']:,}", f"{row['a']['value']:.4f}",
            f"{row['b']['value']:.4f}", f"{d['value']:+.4f}", interval(d), chance(row["p_holm"]),
            "yes" if row["beyond_noise"] else "no", written(row["detectable"], ".4f"),
        ]  # fmt: skip
        lines.append([*cells, items_needed(row)] if needed else cells)
    return lines


def items_needed(row: dict[str, Any]) -> str:
    """`1,040 in 520 clusters`; `more runs` where items do not suffice."""
    if row["more_runs_needed"]:
        return "more runs"
    items, clusters = row["items_needed"], row["clusters_needed"]
    return written(items, ",") + ("" if items == clusters else f" in {clusters:,} clusters")


def interval(estimate: dict[str, Any], sign: str = "+") -> str:
    """`-0.0100 to +0.0300`; nothing where there is none."""
    ends = (written(estimate[end], f"{sign}.4f") for end in ("low", "high"))
    return "" if estimate["low"] is None else " to ".join(ends)


def chance(p: float | None) -> str:
    """A p value with three decimals."""
    return "" if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001"


def written(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def closing(found: dict[str, Any]) -> list[str]:
    """What was not compared, and what must be known beside the figures."""
    lines: list[str] = []
    for row in [*found["rows"], *found["documents"]]:
        what = "document" if "source" in row else "item"
        for side in "ab":
            if alone := row[f"only_{side}"]:
                name = row.get("source") or f"{row['task']}, {row['metric']}"
                lines.append(f"{name}: {quantity(alone, what)} of {side.upper()} without a partner")
    if found["not_compared"]:
        lines.append(f"not compared, since not all runs have it: {'; '.join(found['not_compared'])}")
    lines.append(
        "n: items or documents; p: of no difference, corrected for the number of rows (Holm); detectable: the smallest difference"
        " that so many show in 4 of 5 cases"
    )
    return [*lines, *found["notes"]]
