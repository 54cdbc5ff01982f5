"""A publication holds nothing that was taken out of its run."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.private import search_published
from corpusmill.pipeline.inspect.publication.publish import Wanted, publish
from corpusmill.schemas.publication import About
from tests.conftest import Serial
from tests.e2e.cli import corpusmill
from tests.operations.publications import (
    contents,
    final_documents,
    linked,
    redacted_values,
    texts_of,
)


def texts_removed(run: Path, kept: str) -> list[str]:
    """A part of each document that was removed, where no kept document has the same words."""
    found = []
    gone = {
        row["doc_id"]
        for file in (run / "ledger").glob("*.parquet")
        for row in pq.read_table(file).to_pylist()
        if row["outcome"] != "kept"
    }
    for file in sorted((run / "ingest/documents").glob("*.parquet")):
        for row in pq.read_table(file, columns=["doc_id", "text"]).to_pylist():
            text = row["text"]
            middle = text[len(text) // 2 :][:60]
            if row["doc_id"] in gone and len(middle) == 60 and middle not in kept:
                found.append(middle)
    return found


def test_nothing_that_was_taken_out(finished: Path, corpus: Path, published: Path, json_lines: Path) -> None:
    secrets = {value for value in redacted_values(finished) if len(value) > 6}
    kept = "\n".join(row["text"] for row in final_documents(finished).values())
    removed = texts_removed(finished, kept)
    assert len(secrets) > 50 and len(removed) > 100
    raw_records = {str(corpus), "planted.jsonl.gz#", "broken.jsonl#"}
    wanted = sorted({*secrets, *removed, *raw_records})
    for folder in (published, json_lines):
        for where, text in texts_of(folder):
            assert not (hits := [one for one in wanted if one in text]), (where, hits)
    # The same search finds them in the run, where they must be.
    page = (finished / "report.html").read_text()
    assert any(one in page for one in wanted)
    names = {path.split("/")[0] for path in contents(published)}
    assert names == {
        "LICENSES.md", "README.md", "SHA256SUMS", "croissant.json", "data", "ledger", "publication.json", "report.html",
        "report.json", "shards", "tokenizer",
    }  # fmt: skip


def test_what_to_search_a_publication_for_is_in_its_run(finished: Path, published: Path) -> None:
    with pytest.raises(UserError, match="a publication; name the run that it was made from with --run"):
        search_published(str(published))
    found = search_published(str(published), str(finished))
    assert found.files and not sum(found.counts.values())


def test_the_report_shows_no_documents(finished: Path, published: Path) -> None:
    def shown(value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            yield from value.items()
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from shown(one)

    words = {
        "text",
        "locator",
        "source_id",
        "url",
        "detail",
        "before",
        "after",
        "excerpt",
        "removed_text",
        "kept_text",
    }
    whole = json.loads((finished / "report/report.json").read_bytes())
    public = json.loads((published / "report.json").read_bytes())
    assert {"text", "locator"} <= {key for key, value in shown(whole) if value}  # there was something to hide
    assert [(key, value) for key, value in shown(public) if key in words and value] == []
    assert whole["samples"]["near"] and set(public["samples"]) == set(whole["samples"])
    assert not any(public["samples"].values())
    page = (published / "report.html").read_text()
    assert 'class="sample"' not in page and 'class="sample"' in (finished / "report.html").read_text()
    # Nothing refers to the run, which readers of the publication do not have.
    for absent in ("<script", "--run", "resources.html"):
        assert absent in (finished / "report.html").read_text() and absent not in page


def test_takedowns_stay_out(finished: Path, published: Path, serial: Serial, tmp_path: Path) -> None:
    run = linked(finished, tmp_path / "run")
    documents = final_documents(run)
    kept = "\n".join(row["text"] for row in documents.values())
    doc_id, part = next(
        (doc_id, part)
        for doc_id, row in documents.items()
        if len(part := row["text"][len(row["text"]) // 2 :][:60]) == 60 and kept.count(part) == 1
    )
    (tmp_path / "gone.txt").write_text(doc_id)
    corpusmill("takedown", tmp_path / "gone.txt", "--run", run, "--quiet")
    stated = publish(Folder(run), Folder(tmp_path / "out"), Wanted(), False, serial, print)
    assert stated.taken_down == 1 and stated.documents and stated.shards
    assert (
        sum(one.documents for one in stated.documents.sets)
        == sum(one.documents for one in stated.shards.sets)
        == len(documents) - 1
    )
    assert any(part in text for _, text in texts_of(published))
    assert not any(part in text for _, text in texts_of(tmp_path / "out"))


def test_an_original_that_is_left_stops_it(
    finished: Path, serial: Serial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever let one through: here the card, into which a publisher wrote one."""
    secret = next(
        value for value in sorted(redacted_values(finished)) if re.fullmatch(r"[a-z.]+@[a-z.]+", value)
    )
    wanted = Wanted(about=About(contact=secret))
    with pytest.raises(
        WorkError, match=r"what redact recognised is still in it: email 1; in README.md"
    ) as error:
        publish(Folder(finished), Folder(tmp_path / "out"), wanted, False, serial, print)
    assert secret not in str(error.value) and not (tmp_path / "out/publication.json").exists()


def test_a_damaged_shard_is_named_as_not_searched(finished: Path, published: Path, tmp_path: Path) -> None:
    place = next(published.glob("shards/*/train/*.tar")).parent
    copy = tmp_path / "copy"
    shutil.copytree(place, copy / place.relative_to(published))
    shutil.copytree(published / "tokenizer", copy / "tokenizer")
    tar = next(copy.glob("shards/*/train/*.tar"))
    content = io.BytesIO()
    np.save(content, np.array([10**6], np.uint32))  # a token that the vocabulary has not
    with tarfile.open(tar, "w") as made:
        member = tarfile.TarInfo("a.tokens.npy")
        member.size = len(content.getvalue())
        made.addfile(member, io.BytesIO(content.getvalue()))
    (skipped,) = search_published(str(copy), str(finished)).skipped
    assert skipped.startswith(f"{tar.relative_to(copy)}: ")
