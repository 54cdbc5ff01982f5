"""The command: a recipe or a run, what to change, and how to print it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from corpusmill.common.errors import UserError
from corpusmill.pipeline.commands.options import Address, Json, Quiet, print_json

if TYPE_CHECKING:
    from corpusmill.pipeline.inspect.what_if.answer import Finished

EXAMPLE: Final = "corpusmill what-if configs/recipes/quickstart.yaml --set filter.thresholds.gopher_quality.word_count_min=30"
SMALL: Final = (
    2 << 30
)  # bytes of text behind the signals: with less, workers take longer to start than to work


def what_if(
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe (YAML) that has been run; or give --run.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What to change, in filter; repeatable."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="DIR", help="Folder or URL of a run or of filter's output. [the recipe's]"
        ),
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="Documents shown that would come back, and go.")] = 5,
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
    from corpusmill.pipeline.inspect.what_if.answer import answer, ask
    from corpusmill.pipeline.inspect.what_if.show import show
    from corpusmill.schemas.recipe import Cluster, Recipe

    if recipe is None and run is None:
        raise UserError("what-if: give a recipe that has been run, or --run DIR")
    if recipe is not None and Path(recipe).is_dir():
        raise UserError(f"what-if: {recipe}: is a folder; of a finished run say --run {recipe}")
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


def find_run(url: str) -> Finished:
    """The finished run in a folder, or the output of `corpusmill filter`; raises `UserError` if there is none."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.layout import recipe_of, stage_folders
    from corpusmill.pipeline.inspect.what_if.answer import Finished
    from corpusmill.schemas.recipe import FOLDERS

    recipe, alone = recipe_of(url)
    stages = [*recipe.stage_names, "ledger"]
    places = {name: f"{url.rstrip('/')}/{FOLDERS.get(name, name)}" for name in stages}
    if alone:
        places |= stage_folders([name for name in recipe.stage_names if name != "report"], url)
    folders = {name: Folder(place) for name, place in places.items()}
    return Finished(
        recipe=recipe,
        filter=folders.get("filter", Folder(url)),
        ledger=folders["ledger"],
        dedup=folders.get("dedup"),
        shards=folders.get("shard"),
        tokenizer=folders.get("tokenizer"),
    )
