"""`corpusmill publish`: the same bytes each time, also after a kill, by workers and into an object store; `verify` finds what changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.publication.check import check
from corpusmill.pipeline.inspect.publication.publish import Wanted, publish
from tests.conftest import Serial
from tests.e2e.cli import corpusmill, started
from tests.e2e.killing import killed_without_workers
from tests.operations.publications import (
    ABOUT,
    contents,
)


def test_sha256sum_finds_all_as_it_was(published: Path) -> None:
    result = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=published, capture_output=True, text=True)
    assert result.returncode == 0 and "FAILED" not in result.stdout, result.stdout + result.stderr
    named = {line.split("  ", 1)[1] for line in (published / "SHA256SUMS").read_text().splitlines()}
    assert contents(published).keys() - named == {"SHA256SUMS", "publication.json"}


def test_the_same_bytes_again_and_by_workers(finished: Path, published: Path, tmp_path: Path) -> None:
    (tmp_path / "about.yaml").write_text(ABOUT)
    more = ("--about", tmp_path / "about.yaml", "--workers", "2")
    started("publish", finished, tmp_path / "out", *more, env={"PYTHONHASHSEED": "5"})
    assert contents(tmp_path / "out") == contents(published)
    again = corpusmill("publish", finished, tmp_path / "out", *more[:2], "--workers", "0")
    assert "published already, nothing to do" in again.stderr


@pytest.mark.parametrize("moment", ["data/*/train-*", "shards/*/*/*.tar", "report.json", "SHA256SUMS"])
def test_killed_and_given_again(moment: str, finished: Path, published: Path, tmp_path: Path) -> None:
    (tmp_path / "about.yaml").write_text(ABOUT)
    out = tmp_path / "out"
    command = ("publish", finished, out, "--about", tmp_path / "about.yaml", "--workers", "0")
    assert killed_without_workers(out, moment, *command)
    assert not (out / "publication.json").exists()
    unfinished = corpusmill("verify", out, check=False)
    assert unfinished.returncode == 1 and "a publication that is not finished" in unfinished.stderr
    corpusmill(*command)
    assert contents(out) == contents(published)
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []


@pytest.mark.s3
def test_into_an_object_store(finished: Path, json_lines: Path, serial: Serial, s3: str) -> None:
    wanted = Wanted(documents="jsonl", shards=False, ledger=False)
    publish(Folder(finished), Folder(s3), wanted, False, serial, print)
    assert {entry.path: (Folder(s3) / entry.path).read() for entry in Folder(s3).list()} == contents(
        json_lines
    )
    found = check(Folder(s3))
    assert found is not None and found.problems == [] and found.files == len(contents(json_lines)) - 2


def test_verify_finds_what_changed(published: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(published, copy)

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


def test_verify_reports_what_is_no_file(published: Path, tmp_path: Path) -> None:
    """A folder or a pipe in the place of a file: a line, no exception, and no read that never ends."""
    copy = tmp_path / "copy"
    shutil.copytree(published, copy)
    for name in ("SHA256SUMS", "publication.json"):
        (copy / name).unlink()
        (copy / name).mkdir()
        found = check(Folder(copy))
        assert found is not None and found.problems == [f"{copy}/{name}: missing: what is there is no file"]
        (copy / name).rmdir()
        os.mkfifo(copy / name)
        found = check(Folder(copy))
        assert found is not None and found.problems == [f"{copy}/{name}: missing: what is there is no file"]
