"""`corpusmill plan-run`: what a recipe would cost, on its own input or on as much of the same as one has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.pipeline.commands.options import Json, Set, print_json

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.planning.forecast import Shape
    from corpusmill.pipeline.engine.stage import SourceStage

PLAN_RUN_EXAMPLE = "corpusmill plan-run recipe.yaml --bytes 100TB --workers 500"
FILE_BYTES = 1e9  # of an input file, where there is none to look at


def plan_run(
    recipe: Annotated[str, typer.Argument(help="A recipe (YAML).")],
    set_: Set = None,
    bytes_: Annotated[
        str | None,
        typer.Option(
            "--bytes",
            metavar="SIZE",
            help="Input as stored, such as 100TB: more of the recipe's files. [its own]",
        ),
    ] = None,
    documents: Annotated[
        float | None, typer.Option(help="Documents, such as 10e9; instead of --bytes.")
    ] = None,
    bytes_per_document: Annotated[
        float | None,
        typer.Option(help="Mean UTF-8 bytes of text per document. [as where constants were measured]"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers of one core each. [the recipe's, cores]")
    ] = None,
    memory_per_worker: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of a worker, such as 4GB: warns if it is too little."),
    ] = None,
    driver_memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of the driver.")] = "64GB",
    price_per_core_hour: Annotated[
        float | None, typer.Option(min=0, help="For the cost, in any currency.")
    ] = None,
    object_store: Annotated[
        bool | None,
        typer.Option(
            "--object-store/--local",
            help="Where input and output lie. [an object store with --bytes or --documents, else as the recipe says]",
        ),
    ] = None,
    copies: Annotated[float, typer.Option(min=0, help="Mean number of exact copies per document.")] = 0.3,
    duplicates: Annotated[
        float, typer.Option(min=0, help="Mean number of near-duplicates (0.5 to 1) per document.")
    ] = 0.5,
    steps: Annotated[bool, typer.Option("--steps", help="Show the steps of each stage.")] = False,
    json: Json = False,
) -> None:
    """Time, cost, memory, disk and requests of a recipe, stage by stage, before it runs; nothing is read or written."""
    import os

    from corpusmill.common.config import load
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.custom import load_stage
    from corpusmill.pipeline.engine.planned import stages_of
    from corpusmill.pipeline.engine.planning.constants import measured
    from corpusmill.pipeline.engine.planning.estimate import Terms, plan
    from corpusmill.pipeline.engine.planning.text import show
    from corpusmill.pipeline.engine.stage import SourceStage
    from corpusmill.schemas.recipe import Recipe

    for name, value in (("documents", documents), ("bytes-per-document", bytes_per_document)):
        if value is not None and not 0 < value < 1e18:
            raise UserError(f"--{name}: {value:g} must be greater than 0, and less than 1e18")
    if bytes_ is not None and documents is not None:
        raise UserError("--bytes and --documents: give one of them; --bytes-per-document goes with both")
    loaded = load(Recipe, recipe, list(set_ or []))
    stages = [load_stage(name, loaded) for name in stages_of(loaded)]
    source = stages[0]
    assert isinstance(source, SourceStage)
    wanted = _size("--bytes", bytes_) if bytes_ is not None else None
    text = None
    if documents is not None:
        text = documents * (bytes_per_document or measured().bytes_per_document)
    shape = _shape(source, wanted, text)
    remote = object_store
    if remote is None:
        remote = wanted is not None or text is not None or not Folder(loaded.output_url).local
    cores = loaded.cluster.workers if loaded.cluster.workers is not None else os.cpu_count() or 1
    terms = Terms(
        workers=max(1, workers or cores), object_store=remote, price=price_per_core_hour, copies=copies,
        duplicates=duplicates, driver_memory=_size("--driver-memory", driver_memory),
        worker_memory=_size("--memory-per-worker", memory_per_worker) if memory_per_worker else 0.0,
    )  # fmt: skip
    found = plan(stages, shape, terms, len(loaded.sources), bytes_per_document)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        typer.echo(show(found, steps))


def _size(option: str, value: str) -> float:
    from dask.utils import parse_bytes

    try:
        size = float(parse_bytes(value))
    except ValueError:
        size = 0.0
    if not 0 < size < 1e18:
        raise UserError(f"{option}: '{value}' is no size; give one such as 100TB, 4GB or 512MiB")
    return size


def _shape(source: SourceStage, wanted: float | None, text: float | None) -> Shape:
    """The recipe's own input, scaled to as many bytes as stored, or as text; one of large files where there is no input, or nothing
    in it."""
    from corpusmill.pipeline.engine.planning.estimate import scaled
    from corpusmill.pipeline.engine.planning.forecast import Shape

    shape = None
    try:
        shape = source.shape()
    except UserError:
        if wanted is None and text is None:
            raise
    if wanted is None and text is None and shape is not None:
        return shape
    if shape is None or not shape.text_bytes:
        size = FILE_BYTES
        partition = source.params.partition_mb * 2**20
        shape = Shape(size, size, 1.0, 1.0, max(1.0, size / partition))
    if wanted is not None:
        return scaled(shape, wanted)
    assert text is not None
    return scaled(shape, shape.input_bytes * text / shape.text_bytes)
