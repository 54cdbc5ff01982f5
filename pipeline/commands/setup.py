"""`corpusmill init`: a project to begin with; `corpusmill warmup`: kernels compiled ahead of the first run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from corpusmill.common.errors import UserError, WorkError

TEMPLATES = Path(__file__).parent / "templates"
FILES = {
    "recipe.yaml": "recipe.yaml",
    "train.yaml": "train.yaml",
    "README.md": "README.md",
    "documents.jsonl": "documents/documents.jsonl",
}
INIT_EXAMPLE = "corpusmill init my-corpus"
WARMUP_EXAMPLE = "corpusmill warmup"


def init(folder: Annotated[str, typer.Argument(metavar="DIR", help="A new or empty folder.")]) -> None:
    """Write a starter recipe, training config and README."""
    place = Path(folder).expanduser()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        what = "is not empty" if place.is_dir() else "is a file"
        raise UserError(f"{folder}: {what}; name a new folder, or an empty one")
    try:
        for template, name in FILES.items():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((TEMPLATES / template).read_bytes())
    except OSError as error:
        raise WorkError(f"{folder}: cannot be written: {error.strerror}") from None
    typer.echo(f"wrote {', '.join(FILES.values())}\nnow: cd {folder} && corpusmill run recipe.yaml")


def warmup() -> None:
    """Compile the kernels that the commands use into the cache."""
    import tempfile
    import time

    from corpusmill.common.kernel_keys import cache_folder

    started = time.monotonic()
    before = _compiled()
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
        for label, seconds in _warm(Path(folder)):
            now = _compiled()
            typer.echo(f"{label:<14} {now - before:>4} kernels compiled  {seconds:6.1f} s")
            before = now
    typer.echo(f"{before} kernels in {cache_folder()}, {time.monotonic() - started:.0f} s")


def _compiled() -> int:
    """Compiled kernels in the cache: one file for each and the types that it was compiled for."""
    from corpusmill.common.kernel_keys import cache_folder

    return sum(1 for _ in cache_folder().glob("*/*.code"))


def _warm(folder: Path) -> Iterator[tuple[str, float]]:
    """Run everything that has kernels on the starter's documents; (what, seconds). On a machine that has none, stages are run by
    themselves first, on all cores."""
    import time

    from corpusmill.common.kernel_keys import is_first_use
    from corpusmill.pipeline.commands.kernels import compile_ahead, recipes, run
    from corpusmill.pipeline.engine.progress import Progress

    if is_first_use():
        clock = time.monotonic()
        if compile_ahead(Progress(quiet=True)):
            yield "on all cores", time.monotonic() - clock
    for number, (label, recipe) in enumerate(recipes(folder).items()):
        clock = time.monotonic()
        run(recipe, folder / str(number), then_look=number == 0)
        yield label, time.monotonic() - clock
