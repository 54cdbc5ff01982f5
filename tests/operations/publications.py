"""Publications of the small run, and what can be read in them and in the run."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tokenizers import Tokenizer

from corpusmill.schemas.publication import Publication
from tests.conftest import shared
from tests.e2e.cli import corpusmill

ABOUT = """\
title: A small corpus
description: Text to test with.
creator: The testers
contact: tests@example.org
url: https://example.org/corpus
version: 1.0.0
date: 2026-01-31
license: CC-BY-4.0
citation: |
  @misc{testers, title = {A small corpus}}
"""


@pytest.fixture(scope="session")
def published(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The publication of the small run."""

    def make(folder: Path) -> None:
        (folder / "about.yaml").write_text(ABOUT)
        corpusmill("publish", finished, folder / "out", "--about", folder / "about.yaml", "--workers", "0")

    return shared(tmp_path_factory, "publication", make) / "out"


@pytest.fixture(scope="session")
def json_lines(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with JSON lines, and without the rest."""

    def make(folder: Path) -> None:
        options = ("--documents", "jsonl", "--no-shards", "--no-ledger", "--workers", "0")
        corpusmill("publish", finished, folder / "out", *options)

    return shared(tmp_path_factory, "publication-lines", make) / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def publication(folder: Path) -> Publication:
    return Publication.model_validate_json((folder / "publication.json").read_bytes())


def final_documents(run: Path) -> dict[str, dict[str, Any]]:
    tables = [pq.read_table(file) for file in sorted((run / "redact/documents").glob("*.parquet"))]
    return {row["doc_id"].hex(): row for row in pa.concat_tables(tables).to_pylist()}


def texts_of(folder: Path) -> Iterator[tuple[str, str]]:
    """Every text that can be got out of any file, decompressed and decoded."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer/tokenizer.json"))
    for path, data in contents(folder).items():
        if path.endswith(".parquet"):
            for name, column in zip(
                (table := pq.read_table(io.BytesIO(data))).column_names, table.columns, strict=True
            ):
                yield f"{path}:{name}", "\n".join(str(value) for value in column.to_pylist())
        elif path.endswith(".zst"):
            yield path, zstandard.ZstdDecompressor().stream_reader(data).read().decode()
        elif path.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                for member in tar:
                    content = tar.extractfile(member).read()  # type: ignore[union-attr]
                    if member.name.endswith(".tokens.npy"):
                        yield f"{path}:{member.name}", tokenizer.decode(np.load(io.BytesIO(content)).tolist())
                    elif member.name.endswith(".json"):
                        yield f"{path}:{member.name}", content.decode()
        else:
            yield path, data.decode("utf-8", "replace")


def redacted_values(run: Path) -> set[str]:
    """What `redact` replaced, as it stood in the documents that it received."""
    found = set()
    for file in sorted((run / "redact/decisions").glob("*.parquet")):
        before = {
            row["doc_id"]: row["text"]
            for row in pq.read_table(run / "dedup/documents" / file.name).to_pylist()
        }
        for row in pq.read_table(file).to_pylist():
            for edit in row["edits"] or ():
                if edit["stage"] == "redact":
                    found.add(before[row["doc_id"]][edit["offset"] : edit["offset"] + edit["length"]])
    return found


def linked(run: Path, to: Path) -> Path:
    """A copy of a run, whose documents are links: what changes here is copied."""
    shutil.copytree(
        run, to, copy_function=lambda a, b: (os.link if "/documents/" in a else shutil.copy2)(a, b)
    )
    return to
