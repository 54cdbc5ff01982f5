"""A small run with shards, tokens and texts, made by the command line in this process; ways to break a tar."""

from __future__ import annotations

import json
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.takedown import run as takedown
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.shards import TAKEDOWNS, BlockDocuments
from tests.conftest import Serial, shared
from tests.pipeline.corpus import contents
from tests.pipeline.dedup.helpers import edited, words
from tests.pipeline.shard.helpers import indexes

RECIPE = """\
name: small
output: {output}
seed: 7
sources:
  web: {{paths: [{folder}/web.jsonl], id_column: id}}
  books: {{paths: [{folder}/books.jsonl], id_column: id}}
ingest: {{partition_mb: 0.03}}
stages: [ingest, dedup, split, tokenizer, shard]
split: {{validation_share: 0.1, min_documents: 2}}
tokenizer: {{vocab_size: 400, sample_mb: 1}}
shard: {{block_tokens: 512, shard_mb: 0.02, format: both}}
"""


def write_corpus(folder: Path) -> None:
    """`web.jsonl` and `books.jsonl`: texts of which some are near-copies, with ids and URLs of their own."""
    generator = random.Random(3)
    for name, count in (("web", 60), ("books", 20)):
        texts: list[str] = []
        while len(texts) < count:
            text = " ".join(words(generator, generator.randint(40, 200))) + " é日本👩🏽‍🚀"
            copies = generator.choice([1, 1, 1, 2, 3])
            texts += [edited(generator, text, generator.randint(0, 3)) for _ in range(copies)]
        lines = [
            {"id": f"{name}{number}", "text": text, "url": f"http://x.org/{name}/{number}"}
            for number, text in enumerate(texts)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def run_recipe(folder: Path, output: Path, *settings: str) -> list[str]:
    """Run the recipe of the corpus in `folder`, in this process; the stages that were not finished before."""
    file = output.with_suffix(".yaml")
    file.write_text(RECIPE.format(folder=folder, output=output))
    job = Run(load(Recipe, str(file), list(settings)), Folder(output), Serial())
    planned = job.plan()
    todo = [entry.name for entry in planned if entry.done is None]
    job.execute(planned)
    return todo


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus and its finished run, `run`; not to be written to."""

    def make(folder: Path) -> None:
        write_corpus(folder)
        run_recipe(folder, folder / "run")

    return shared(tmp_path_factory, "small", make)


@pytest.fixture
def run(small: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be broken."""
    shutil.copytree(small / "run", tmp_path / "run")
    return tmp_path / "run"


def tars(run: Path, of: str = "web/train") -> list[Path]:
    """The tars of a (source, split)."""
    return sorted((run / "shards" / of).glob("*.tar"))


def headers(file: Path) -> list[tuple[str, int, int]]:
    """(name, offset of the header, size of the payload) of a tar's members."""
    with tarfile.open(file) as tar:
        return [(info.name, info.offset, info.size) for info in tar.getmembers()]


def changed(file: Path, change: Callable[[bytearray], None]) -> None:
    """Change a file's bytes in place."""
    data = bytearray(file.read_bytes())
    change(data)
    file.write_bytes(bytes(data))


def ledger(run: Path) -> list[dict[str, Any]]:
    tables = [read_table(Folder(file)) for file in sorted((run / "ledger").glob("*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]


def kept(run: Path) -> list[dict[str, Any]]:
    return [row for row in ledger(run) if row["outcome"] == "kept"]


def take(
    place: Path, names: list[str], cluster: bool = False, dry_run: bool = False, shards: bool = False
) -> Any:
    """The result of a takedown of a run, or of a folder of shards."""
    file = place.parent / f"{place.name}.gone"
    file.write_text("\n".join(names) + "\n")
    where = takedown.place_of(None, str(place)) if shards else takedown.place_of(str(place), None)
    return takedown.take_down(where, Folder(file), cluster, dry_run, Serial(), lambda line: None)


def files(run: Path) -> dict[str, bytes]:
    """The shards, but for what holds times."""
    return {n: d for n, d in contents(run / "shards").items() if n not in ("manifest.json", TAKEDOWNS)}


def held(shards: Path) -> set[str]:
    """Documents of token shards."""
    return {
        doc_id
        for folder, index in indexes(Folder(shards))
        for shard in index.shardlist
        for block in shard.blocks
        for doc_id in BlockDocuments.model_validate_json(
            (folder / shard.url).read_range(block.json_offset, block.json_size)
        ).doc_ids
    }
