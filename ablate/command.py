"""`corpusmill ablate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.train.commands.options import Json, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Collection

    from corpusmill.schemas.ablation import Ablation

EXAMPLE = "corpusmill ablate recipe.yaml runs/ablation --without dedup --without filter"


def ablate(
    recipe: Annotated[str, typer.Argument(help="A recipe (YAML).")],
    out: Annotated[str, typer.Argument(help="A folder, for all arms' runs and the report.")],
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE",
            help="an arm without this stage, or without a rule set, as filter.c4 (repeatable)",
        ),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="an arm with this changed, as dedup.similarity=0.7 (repeatable)"
        ),
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILES",
            help="text of your own that no rule of the recipe has seen, to judge by instead; any format that ingest reads (repeatable)",
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=3, help="halves of the documents that are measured")] = 8,
    smallest: Annotated[float, typer.Option(min=0, help="difference of interest, bits a byte")] = 0.005,
    workers: Annotated[int | None, typer.Option(min=0, help="processes [the recipe's]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the arms; run nothing.")] = False,
    json_: Json = False,
) -> None:
    """What a stage, a rule set or a threshold buys: recipes that differ in one thing, by how well each one's text predicts the same
    held-out text."""
    from corpusmill.ablate.arms import arms_of
    from corpusmill.common.config import load
    from corpusmill.schemas.recipe import Recipe

    loaded = load(Recipe, recipe, [])
    loaded = loaded.importing_from(str(Path(recipe).resolve().parent), str(Path.cwd()))
    arms = arms_of(loaded, without or [], change or [])
    sets = sets_of(held_out or [], loaded.sources)
    if dry_run:
        print_table([["arm", "differs from"], *([arm.name, arm.first or "nowhere"] for arm in arms)], "Arms")
        return
    from corpusmill.ablate.run import run

    found = run(
        loaded, arms, sets, Path(out), draws, smallest, workers, lambda line: typer.echo(line, err=True)
    )
    if json_:
        print_json(found.model_dump(mode="json"))
        return
    show(found, Path(out))


def sets_of(given: list[str], sources: Collection[str]) -> dict[str, str]:
    """Name -> files of held-out sets. Raises `UserError` for one that is not named so, twice, or as one of the recipe's `sources`."""
    found: dict[str, str] = {}
    for one in given:
        name, sign, files = one.partition("=")
        if not (name and sign and files):
            raise UserError(f"--held-out {one}: must be NAME=FILES, such as news=held-out/news.jsonl")
        if name in found:
            raise UserError(f"--held-out {name}: given twice; name the other set otherwise")
        if name in sources:
            raise UserError(
                f"--held-out {name}: a source of the recipe has this name; give the set another one"
            )
        found[name] = files
    return found


def show(found: Ablation, out: Path) -> None:
    """Print the table, and where the page is."""
    from corpusmill.ablate.report import PAGE, by_set, table

    print_table(
        table(found), "Trigrams: bits per byte of the held-out text (a first answer, not a trained model's)"
    )
    if len(found.held_out) > 1:
        print_table(by_set(found), "Differences by held-out text")
    typer.echo(f"the picture: {out / PAGE}", err=True)
