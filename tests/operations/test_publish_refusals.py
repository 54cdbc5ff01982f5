"""What is not published, and where nothing is published; a publication is replaced only by one that says so."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.compare.runs import open_run
from corpusmill.pipeline.inspect.publication.publish import Wanted, publish
from corpusmill.schemas.publication import About
from tests.conftest import Serial
from tests.e2e.cli import corpusmill
from tests.operations.publications import (
    contents,
    linked,
)


def test_refusals(finished: Path, corpus: Path, published: Path, serial: Serial, tmp_path: Path) -> None:
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


def test_replacing_and_licences(finished: Path, published: Path, serial: Serial, tmp_path: Path) -> None:
    copy, run = tmp_path / "copy", linked(finished, tmp_path / "run")
    shutil.copytree(published, copy)
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
    assert contents(copy) == contents(published)
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


def test_a_stage_that_was_changed_since_is_not_published_and_not_compared(
    finished: Path, serial: Serial, tmp_path: Path
) -> None:
    run = linked(finished, tmp_path / "run")
    file = run / "redact/manifest.json"
    manifest = json.loads(file.read_bytes())
    file.write_text(json.dumps(manifest | {"partitions": manifest["partitions"][:1]}))  # the same key
    changed = re.escape(
        f"{file}: changed since the run ended; `corpusmill verify {run}` says what is damaged"
    )
    with pytest.raises(WorkError, match=changed):
        publish(Folder(run), Folder(tmp_path / "out"), Wanted(), False, serial, print)
    with pytest.raises(WorkError, match=changed):
        open_run(str(run))
    assert not (tmp_path / "out").exists()


def test_a_changed_split_is_not_published(finished: Path, serial: Serial, tmp_path: Path) -> None:
    """Or validation documents would go out as training documents."""
    run = linked(finished, tmp_path / "run")
    file = run / "split/validation.parquet"
    pq.write_table(pq.read_table(file).slice(0, 0), file)
    with pytest.raises(WorkError, match=f"{file}: checksum differs from the published one"):
        publish(Folder(run), Folder(tmp_path / "out"), Wanted(), False, serial, print)
