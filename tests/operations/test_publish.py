"""`corpusmill publish`: what goes out is whole, readable and the same each time, and holds nothing that was taken out."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
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

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.private import search_published
from corpusmill.pipeline.inspect.publication.check import check
from corpusmill.pipeline.inspect.publication.publish import Wanted, publish
from corpusmill.schemas.publication import About, Publication
from tests.conftest import Serial, shared
from tests.e2e.cli import corpusmill, started
from tests.e2e.killing import killed_without_workers

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


@pytest.fixture(scope="module")
def made(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The publication of the small run."""

    def make(folder: Path) -> None:
        (folder / "about.yaml").write_text(ABOUT)
        corpusmill("publish", finished, folder / "out", "--about", folder / "about.yaml", "--workers", "0")

    return shared(tmp_path_factory, "publication", make) / "out"


@pytest.fixture(scope="module")
def lines(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def split_of_shards(run: Path) -> dict[str, str]:
    """doc_id -> its split, by the shards."""
    found = {}
    for split in ("train", "validation"):
        for file in (run / "shards").glob(f"*/{split}/*.tar"):
            with tarfile.open(file) as tar:
                for member in tar:
                    if member.name.endswith(".json"):
                        for doc_id in json.loads(tar.extractfile(member).read())["doc_ids"]:  # type: ignore[union-attr]
                            found[doc_id] = split
    return found


def test_documents_are_the_final_ones_by_split(finished: Path, made: Path) -> None:
    wanted, splits = final_documents(finished), split_of_shards(finished)
    seen = {}
    for file in sorted(made.glob("data/*/*.parquet")):
        for row in pq.read_table(file).to_pylist():
            assert row["text"] == wanted[row["doc_id"]]["text"]
            assert row["source"] == wanted[row["doc_id"]]["source"] == file.parent.name
            assert file.name.startswith(f"{splits[row['doc_id']]}-")
            seen[row["doc_id"]] = row
    assert seen.keys() == wanted.keys() == splits.keys()
    stated = publication(made)
    assert stated.documents and sum(one.documents for one in stated.documents.sets) == len(wanted)
    assert sum(one.text_bytes for one in stated.documents.sets) == sum(
        len(row["text"].encode()) for row in wanted.values()
    )
    assert not {"source_id", "locator"} & set(stated.documents.columns)
    assert stated.ledger and stated.ledger.rows == 957 and stated.searched and stated.redacted
    ledger = pq.read_table(made / stated.ledger.files[0])
    kept = {row["doc_id"] for row in ledger.to_pylist() if row["outcome"] == "kept"}
    assert kept == set(wanted)


def test_json_lines_hold_the_same(made: Path, lines: Path) -> None:
    for file in sorted(made.glob("data/*/*.parquet")):
        other = lines / file.relative_to(made).with_suffix(".jsonl.zst")
        text = zstandard.ZstdDecompressor().stream_reader(other.read_bytes()).read().decode()
        assert [json.loads(line) for line in text.split("\n")[:-1]] == pq.read_table(file).to_pylist()
    assert not (lines / "shards").exists() and not (lines / "ledger").exists()


def test_sha256sum_finds_all_as_it_was(made: Path) -> None:
    result = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=made, capture_output=True, text=True)
    assert result.returncode == 0 and "FAILED" not in result.stdout, result.stdout + result.stderr
    named = {line.split("  ", 1)[1] for line in (made / "SHA256SUMS").read_text().splitlines()}
    assert contents(made).keys() - named == {"SHA256SUMS", "publication.json"}


def test_readers(made: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets, duckdb, pandas, polars, webdataset = map(
        pytest.importorskip, ("datasets", "duckdb", "pandas", "polars", "webdataset")
    )
    stated = publication(made)
    assert stated.documents and stated.shards
    by_split: dict[str, int] = {}
    for one in stated.documents.sets:
        by_split[one.split] = by_split.get(one.split, 0) + one.documents
    for split, count in by_split.items():
        pattern = f"{made}/data/*/{split}-*.parquet"
        assert duckdb.sql(f"select count(*) from '{pattern}'").fetchall() == [(count,)]
        assert len(polars.read_parquet(pattern)) == count
        assert sum(len(pandas.read_parquet(file)) for file in made.glob(f"data/*/{split}-*.parquet")) == count
    texts = None
    for folder in (made, lines):  # by the head of the card
        loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
        assert {split: len(rows) for split, rows in loaded.items()} == by_split
        assert texts in (None, loaded["validation"]["text"][:])
        texts = loaded["validation"]["text"][:]
        books = datasets.load_dataset(str(folder), "books", split="train", streaming=True)
        assert {row["source"] for row in books} == {"books"}
    tokenizer = Tokenizer.from_file(str(made / stated.tokenizer))
    assert tokenizer.decode(tokenizer.encode("The whale").ids) == "The whale"
    tars = sorted(str(file) for file in made.glob("shards/*/*/*.tar"))
    blocks = webdataset.WebDataset(tars, shardshuffle=False, empty_check=False).decode()
    assert sum(len(block["tokens.npy"]) for block in blocks) == sum(one.tokens for one in stated.shards.sets)


def test_croissant(made: Path, lines: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    data_set = croissant.Dataset(str(made / "croissant.json"))
    assert not data_set.metadata.issues.errors and not data_set.metadata.issues.warnings
    assert data_set.metadata.name == "A small corpus" and data_set.metadata.license == ["CC-BY-4.0"]
    for split in ("train", "validation"):
        wanted = [
            (row["doc_id"], row["text"])
            for file in sorted(made.glob(f"data/*/{split}-*.parquet"))
            for row in pq.read_table(file, columns=["doc_id", "text"]).to_pylist()
        ]
        found = [
            (row[f"{split}/doc_id"].decode(), row[f"{split}/text"].decode())
            for row in data_set.records(split)
        ]
        assert sorted(found) == sorted(wanted)
    described = {
        one["@id"]: one["sha256"]
        for one in json.loads((made / "croissant.json").read_bytes())["distribution"]
        if one["@type"] == "cr:FileObject"
    }
    sums = dict(reversed(line.split("  ", 1)) for line in (made / "SHA256SUMS").read_text().splitlines())
    assert described == {path: digest for path, digest in sums.items() if path != "croissant.json"}
    assert not croissant.Dataset(str(lines / "croissant.json")).metadata.issues.errors


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


def test_nothing_that_was_taken_out(finished: Path, corpus: Path, made: Path, lines: Path) -> None:
    secrets = {value for value in redacted_values(finished) if len(value) > 6}
    kept = "\n".join(row["text"] for row in final_documents(finished).values())
    removed = texts_removed(finished, kept)
    assert len(secrets) > 50 and len(removed) > 100
    raw_records = {str(corpus), "planted.jsonl.gz#", "broken.jsonl#"}
    either = re.compile("|".join(map(re.escape, sorted({*secrets, *removed, *raw_records}))))
    for folder in (made, lines):
        for where, text in texts_of(folder):
            assert not (hit := either.search(text)), (where, hit)
    # The same search finds them in the run, where they must be.
    assert either.search((finished / "report.html").read_text())
    names = {path.split("/")[0] for path in contents(made)}
    assert names == {
        "LICENSES.md", "README.md", "SHA256SUMS", "croissant.json", "data", "ledger", "publication.json", "report.html",
        "report.json", "shards", "tokenizer",
    }  # fmt: skip


def test_what_to_search_a_publication_for_is_in_its_run(finished: Path, made: Path) -> None:
    with pytest.raises(UserError, match="a publication; name the run that it was made from with --run"):
        search_published(str(made))
    found = search_published(str(made), str(finished))
    assert found.files and not sum(found.counts.values())


def test_the_report_shows_no_documents(finished: Path, made: Path) -> None:
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
    public = json.loads((made / "report.json").read_bytes())
    assert {"text", "locator"} <= {key for key, value in shown(whole) if value}  # there was something to hide
    assert [(key, value) for key, value in shown(public) if key in words and value] == []
    assert whole["samples"]["near"] and set(public["samples"]) == set(whole["samples"])
    assert not any(public["samples"].values())
    page = (made / "report.html").read_text()
    assert 'class="sample"' not in page and 'class="sample"' in (finished / "report.html").read_text()
    # Nothing refers to the run, which readers of the publication do not have.
    for absent in ("<script", "--run", "resources.html"):
        assert absent in (finished / "report.html").read_text() and absent not in page


def test_the_same_bytes_again_and_by_workers(finished: Path, made: Path, tmp_path: Path) -> None:
    (tmp_path / "about.yaml").write_text(ABOUT)
    more = ("--about", tmp_path / "about.yaml", "--workers", "2")
    started("publish", finished, tmp_path / "out", *more, env={"PYTHONHASHSEED": "5"})
    assert contents(tmp_path / "out") == contents(made)
    again = corpusmill("publish", finished, tmp_path / "out", *more[:2], "--workers", "0")
    assert "published already, nothing to do" in again.stderr


@pytest.mark.parametrize("moment", ["data/*/train-*", "shards/*/*/*.tar", "report.json", "SHA256SUMS"])
def test_killed_and_given_again(moment: str, finished: Path, made: Path, tmp_path: Path) -> None:
    (tmp_path / "about.yaml").write_text(ABOUT)
    out = tmp_path / "out"
    command = ("publish", finished, out, "--about", tmp_path / "about.yaml", "--workers", "0")
    assert killed_without_workers(out, moment, *command)
    assert not (out / "publication.json").exists()
    unfinished = corpusmill("verify", out, check=False)
    assert unfinished.returncode == 1 and "a publication that is not finished" in unfinished.stderr
    corpusmill(*command)
    assert contents(out) == contents(made)
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []


@pytest.mark.s3
def test_into_an_object_store(finished: Path, lines: Path, serial: Serial, s3: str) -> None:
    wanted = Wanted(documents="jsonl", shards=False, ledger=False)
    publish(Folder(finished), Folder(s3), wanted, False, serial, print)
    assert {entry.path: (Folder(s3) / entry.path).read() for entry in Folder(s3).list()} == contents(lines)
    found = check(Folder(s3))
    assert found is not None and found.problems == [] and found.files == len(contents(lines)) - 2


def test_verify_finds_what_changed(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)

    def problems() -> list[str]:
        result = corpusmill("verify", copy, "--json", check=False)
        found: list[str] = json.loads(result.stdout)["problems"]
        assert result.returncode == bool(found)
        return found

    assert problems() == []
    file = next(copy.glob("data/books/train-*.parquet"))
    data = file.read_bytes()
    file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    assert problems() == [f"{file}: checksum differs from the one in SHA256SUMS"]
    file.unlink()
    (copy / "notes.txt").write_text("mine")
    assert problems() == [f"{copy}/notes.txt: in no list", f"{file}: missing"]
    (copy / "notes.txt").unlink()
    file.write_bytes(data)
    sums = copy / "SHA256SUMS"
    listed = sums.read_text()
    sums.write_text(listed.replace("a", "b"))
    assert problems() == [
        f"{sums}: checksum differs from the one in publication.json; its files were not checked"
    ]
    sums.write_text(listed)
    about = copy / "publication.json"
    stated = json.loads(about.read_bytes())
    stated["documents"]["sets"][0]["documents"] += 1
    about.write_text(json.dumps(stated))
    assert problems() == [f"{about}: says 24 documents of books, train, the files have 23"]
    about.write_text("{}")
    assert problems()[0].startswith(f"{about}: not a Publication: ")


def linked(run: Path, to: Path) -> Path:
    """A copy of a run, whose documents are links: what changes here is copied."""
    shutil.copytree(
        run, to, copy_function=lambda a, b: (os.link if "/documents/" in a else shutil.copy2)(a, b)
    )
    return to


def test_takedowns_stay_out(finished: Path, made: Path, serial: Serial, tmp_path: Path) -> None:
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
        == 671
    )
    assert any(part in text for _, text in texts_of(made))
    assert not any(part in text for _, text in texts_of(tmp_path / "out"))


def test_refusals(finished: Path, corpus: Path, made: Path, serial: Serial, tmp_path: Path) -> None:
    def refused(run: Path, dest: Path, wanted: Wanted = Wanted(), replace: bool = False) -> str:
        with pytest.raises(UserError) as error:
            publish(Folder(run), Folder(dest), wanted, replace, serial, print)
        assert "\n" not in str(error.value)
        return str(error.value)

    out = tmp_path / "out"
    assert "no finished run there" in refused(tmp_path, out)
    assert f"{finished}/published: lies in the run" in refused(finished, finished / "published")
    assert "or holds it" in refused(finished, finished.parent)
    assert f"the output {corpus}/books/out lies within it" in refused(finished, corpus / "books/out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("all of it")
    for replace in (False, True):
        other = refused(finished, tmp_path / "mine", replace=replace)
        assert "holds something else than a publication, such as thesis.txt" in other
    assert (tmp_path / "mine/thesis.txt").exists()

    run = linked(finished, tmp_path / "run")
    file = run / "manifest.json"
    record = json.loads(file.read_bytes())

    def changed(**values: Any) -> Path:
        file.write_text(json.dumps({**record, **values}))
        return run

    def without(stage: str) -> dict[str, Any]:
        names = [name for name in record["recipe"]["stages"] if name != stage]
        left = {name: one for name, one in record["stages"].items() if name != stage}
        return {"stages": left, "recipe": {**record["recipe"], "stages": names}}

    assert "the run ended early" in refused(changed(ended_early=True), out)
    stages = {**record["stages"], "split": {**record["stages"]["split"], "key": "another"}}
    assert "a later run changed split and was not finished" in refused(changed(stages=stages), out)
    assert "the run has no redact stage" in refused(changed(**without("redact")), out)
    assert "`corpusmill report" in refused(changed(**without("report")), out)
    sources = {
        name: {**one, "license_files": ["no.txt"]} for name, one in record["recipe"]["sources"].items()
    }
    named = changed(recipe={**record["recipe"], "sources": sources})
    assert "sources.books.license_files: no.txt: no such file" in refused(named, out)
    assert not (out / "publication.json").exists()


def test_replacing_and_licences(finished: Path, made: Path, serial: Serial, tmp_path: Path) -> None:
    copy, run = tmp_path / "copy", linked(finished, tmp_path / "run")
    shutil.copytree(made, copy)
    record = json.loads((run / "manifest.json").read_bytes())
    (tmp_path / "COPYING").write_text("Do what is right.\n")
    record["recipe"]["sources"]["books"] |= {
        "license": "CC0-1.0", "homepage": "https://example.org/books", "citation": "@book{a}",
        "license_files": [str(tmp_path / "COPYING")],
    }  # fmt: skip
    (run / "manifest.json").write_text(json.dumps(record))
    wanted = Wanted(documents=None, ledger=False, about=About(title="Another"))
    with pytest.raises(UserError, match=r"holds another publication.*; give --replace, or another folder"):
        publish(Folder(run), Folder(copy), wanted, False, serial, print)
    assert contents(copy) == contents(made)
    lines: list[str] = []
    stated = publish(Folder(run), Folder(copy), wanted, True, serial, lines.append)
    assert [line.split(":")[1].strip() for line in lines if "license" in line] == [
        f"sources.{name}.license" for name in record["recipe"]["sources"] if name != "books"
    ]
    assert not (copy / "data").exists() and not (copy / "ledger").exists() and stated.documents is None
    assert (copy / "licenses/books/COPYING").read_text() == "Do what is right.\n"
    licences = (copy / "LICENSES.md").read_text()
    assert (
        "- Licence: CC0-1.0" in licences
        and "    @book{a}" in licences
        and "<https://example.org/books>" in licences
    )
    assert "- Text: [licenses/books/COPYING](licenses/books/COPYING)" in licences
    assert "pretty_name: Another" in (copy / "README.md").read_text()
    assert json.loads(corpusmill("verify", copy, "--json").stdout)["problems"] == []


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
