"""Names and kinds of files that other tools lose, stop at, or wait for."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.ingest.discover import discover
from corpusmill.pipeline.ingest.local_files import look_at
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.sources import Source
from tests.conftest import Serial


def run(folder: Path, **source: Any) -> list[dict[str, Any]]:
    """The ledger of ingesting `folder`/in."""
    config = {
        "name": "t", "stages": ["ingest"], "sources": {"s": {"paths": [str(folder / "in")], "format": "text", **source}},
    }  # fmt: skip
    Run(Recipe.model_validate(config), Folder(folder / "run"), Serial()).execute()
    verify(Folder(folder / "run"))
    return [
        row
        for file in sorted((folder / "run/ledger").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]


@pytest.mark.parametrize(
    "name", ["part#1", "a#7", "a.txt#12", "#3", "100%", "a b", "é", "x" * 250, "a\\b", "$(x)", "*"]
)
def test_names_that_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text("some text")
    (row,) = run(tmp_path)
    assert (row["outcome"], row["locator"]) == ("kept", f"{name}#0")
    alone = discover("s", Source(paths=[str(tmp_path / "in" / name)]))
    assert [file.path for file in alone] == [name]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder with one good file and one of each kind that cannot be read."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "good.txt").write_text("some text")
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(folder)  # the path of a socket has room for 108 bytes
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
    (folder / "device").symlink_to("/dev/zero")
    (folder / "nothing").symlink_to("gone")
    (folder / "loop").symlink_to("loop")
    (folder / "sub/up").symlink_to("..", target_is_directory=True)
    (folder / "two\nlines\x1b[31m").write_text("text")
    Path(os.fsdecode(os.fsencode(str(folder)) + b"/latin\xe9.txt")).write_text("text")
    return tmp_path


REASONS = {
    "fifo": "a FIFO (named pipe); only regular files are read",
    "socket": "a socket; only regular files are read",
    "device": "a character device; only regular files are read",
    "nothing": "a link to nothing",
    "loop": "a link that leads back to itself",
    "sub/up": "a link that leads back to a folder above it",
    "two\\x0alines\\x1b[31m": "its name holds control characters; rename it",
    "latin\\xe9.txt": "its name is not UTF-8; rename it",
}


def test_each_kind_that_cannot_be_read_is_a_row_of_its_own(odd: Path) -> None:
    rows = {row["locator"].rpartition("#")[0]: row for row in run(odd)}
    assert {path: row["detail"] for path, row in rows.items() if row["outcome"] == "quarantined"} == REASONS
    assert {row["rule"] for row in rows.values() if row["outcome"] == "quarantined"} == {
        "ingest.unreadable_file"
    }
    assert rows["good.txt"]["outcome"] == "kept" and len(rows) == 1 + len(REASONS)


def test_a_recipe_can_stop_at_them(odd: Path) -> None:
    with pytest.raises(UserError, match=r"sources\.s\.paths: .*/in/device: a character device") as caught:
        run(odd, unreadable_files="stop")
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    assert not (odd / "run").exists()


def test_a_path_that_is_a_fifo_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (file,) = discover("s", Source(paths=[str(tmp_path / "pipe")]))
    assert file.problem.startswith("a FIFO")


def test_a_file_without_the_right_to_read_it(tmp_path: Path) -> None:
    """As another user, since root may read everything."""
    tmp_path.chmod(0o755)
    for above in tmp_path.parents:
        if above.stat().st_uid == os.getuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    (tmp_path / "mine.txt").write_text("text")
    (tmp_path / "mine.txt").chmod(0)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0)
    code = (
        "import json, os, sys; from pathlib import Path; from corpusmill.pipeline.ingest.local_files import walk\n"
        "if os.getuid() == 0: os.seteuid(65534)\n"
        "print(json.dumps(sorted((f.path, f.problem) for f in walk(Path(sys.argv[1])))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    found = [tuple(one) for one in json.loads(done.stdout)]
    assert found == [
        ("closed", "cannot be looked at: Permission denied"), ("mine.txt", "cannot be read: Permission denied"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ({"paths": [""]}, "paths"),
        ({"paths": ["x", "  "]}, "paths"),
        ({"paths": ["x"], "priority": 10**23}, "priority"),
        ({"paths": ["x"], "unreadable_files": "ignore"}, "unreadable_files"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_by_its_key(source: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        Source.model_validate(source)


def test_an_unknown_encoding_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("text")
    with pytest.raises(UserError, match=r"sources\.s\.encoding: 'nonsense' is not the name of an encoding"):
        run(tmp_path, encoding="nonsense")
    assert not (tmp_path / "run").exists()


def test_a_name_that_no_file_system_takes_is_not_there() -> None:
    assert look_at(Path("/tmp") / ("a" * 5_000)) is None
