"""`corpusmill init`: a project to begin with; `corpusmill warmup`: kernels compiled ahead of the first run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

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
    """Run everything that has kernels on the starter's documents; (what, seconds)."""
    import json
    import time

    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.engine.runner import Run
    from corpusmill.pipeline.inspect.lineage.find import Finder
    from corpusmill.pipeline.inspect.lineage.shards import parse
    from corpusmill.pipeline.inspect.lineage.trace import Tracer, shards_of
    from corpusmill.pipeline.inspect.verify import verify
    from corpusmill.schemas.recipe import Recipe

    documents = folder / "documents.jsonl"
    documents.write_bytes((TEMPLATES / "documents.jsonl").read_bytes())
    text = json.loads(documents.read_text("utf-8").splitlines()[0])["text"]
    evals = folder / "evals.jsonl"
    evals.write_text(json.dumps({"question": " ".join(text.split()[:30]), "answer": "none"}) + "\n", "utf-8")
    common = {
        "sources": {"documents": {"paths": [str(documents)]}}, "tokenizer": {"vocab_size": 512},
        "split": {"validation_share": 0.1, "min_documents": 2}, "decontaminate": {"against": [str(evals)]},
    }  # fmt: skip
    runs: dict[str, dict[str, Any]] = {
        "a run": {"shard": {"format": "both", "block_tokens": 1024}},
        "other options": {
            "filter": {"rules": _rule_sets(), "cut_lines": True},
            "dedup": {
                "url": True, "normalized": True, "containment": 0.8, "shingle": "char", "store_signatures": True,
                "lines": {"unit": "line"}, "substrings": {"min_tokens": 20},
            },
            "decontaminate": {"against": [str(evals)], "action": "cut", "span": "window"},
            "shard": {"block_tokens": 1024}, "tokenizer": {"vocab_size": 512, "model": "unigram"},
        },
        "datatrove": {
            "stages": ["ingest", "dedup"], "dedup": {"preset": "datatrove", "lines": {"unit": "sentences"}},
        },
    }  # fmt: skip
    progress = Progress(quiet=True)
    for number, (label, changes) in enumerate(runs.items()):
        clock = time.monotonic()
        recipe = Recipe.model_validate({"name": "warmup", **common, **changes})
        place = Folder(str(folder / str(number)))
        with Workers(recipe.cluster.model_copy(update={"workers": 0}), None, progress) as scheduler:
            Run(recipe, place, scheduler, progress).execute()
            if number == 0:
                verify(place, scheduler)
                shards, places = shards_of(place.url, progress.log)
                (found,) = Finder(shards, places).find("with-contact", None, None)
                list(Tracer(shards, places).trace(parse(found.places[0].address)))
        yield label, time.monotonic() - clock


def _rule_sets() -> list[str]:
    """The rule sets that need no lists of the user's own, and would not remove every text; `conversation` has no kernels."""
    from corpusmill.schemas.filter import rule_sets

    return [name for name in rule_sets() if name not in ("c4_badwords", "conversation", "url")]
