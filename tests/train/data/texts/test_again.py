"""A token set again, killed, and by several at once: the same bytes, and the work done once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.data.texts import token_set as module
from corpusmill.train.data.texts.token_set import token_set
from tests.conftest import IMPORT_PATH, ROOT
from tests.train.data.texts.conftest import BLOCK, make
from tests.train.data.texts.helpers import (
    contents,
    documents,
    texts,
    write_tar,
)


def started(folder: Path, cache: str = "cache", **env: str) -> subprocess.Popen[str]:
    """The same in a process of its own, which prints each line as it is logged, then the folder."""
    code = (
        "import sys; from corpusmill.train.data.texts import token_set as m; from functools import partial\n"
        f"m.BLOCK_TOKENS = {BLOCK}; url, cache, tokenizer = sys.argv[1:]; log = partial(print, flush=True)\n"
        "log(m.token_set(url, cache, tokenizer=tokenizer, log=log))"
    )
    where = cache if "://" in cache else str(folder.parent / cache)
    arguments = [str(folder), where, str(folder.parent / "tokenizer.json")]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, **env},
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    return out.splitlines()


def test_what_is_there_is_taken_up_and_what_changed_is_made_again(foreign: Path) -> None:
    logged: list[str] = []
    tokenizer, cache = str(foreign.parent / "tokenizer.json"), str(foreign.parent / "cache")
    folder = token_set(str(foreign), cache, tokenizer=tokenizer, log=logged.append)
    assert logged[0] == f"texts: {foreign}: 7 tars to tokenise into {folder}" and len(logged) == 8
    assert logged[1].startswith("texts: 1 of 7: books-train-000000: 11 documents, ")
    before = contents(folder)
    logged.clear()
    assert token_set(str(foreign), cache, tokenizer=tokenizer, log=logged.append) == folder
    assert logged == [f"texts: {foreign}: tokens reused from {folder}"]
    write_tar(foreign / "web/3.tar", texts(40, 99))
    other = token_set(str(foreign), cache, tokenizer=tokenizer, log=logged.append)
    assert other != folder and contents(folder) == before and len(logged) == 9


def test_what_was_lost_from_the_cache_is_made_again(foreign: Path) -> None:
    folder = make(foreign)
    before = contents(folder)
    (Path(folder.url) / "web/train/web-train-000002.tar").unlink()
    (Path(folder.url) / "books/train/books-train-000001.tar").write_bytes(b"short")
    logged: list[str] = []
    tokenizer = str(foreign.parent / "tokenizer.json")
    token_set(str(foreign), str(foreign.parent / "cache"), tokenizer=tokenizer, log=logged.append)
    assert contents(folder) == before
    assert sum("done before" in line for line in logged) == 5


@pytest.mark.parametrize("threads", ["1", "4"])
def test_the_bytes_do_not_depend_on_threads_or_batches(
    foreign: Path, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = finish(started(foreign, "other", RAYON_NUM_THREADS=threads))[-1]
    monkeypatch.setattr("corpusmill.train.data.texts.documents.BATCH", 500)
    assert contents(make(foreign)) == contents(Folder(there))


def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(foreign: Path) -> None:
    for number in range(4):  # larger, so that kills fall into the middle of tars
        write_tar(foreign / f"web/{number}.tar", texts(1500, number))
    before = contents(make(foreign, "unbroken"))
    generator, kills = random.Random(3), 0
    for lines in (1, 2, 4, 5, 6, 7, 8):  # one line when it begins, one for each tar
        process = started(foreign)
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        if lines % 2:  # the others at once: a fast machine would have finished
            time.sleep(generator.random() * 0.3)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    reported = finish(started(foreign))
    assert kills >= 2
    assert contents(Folder(reported[-1])) == before
    left = [file.name for file in Path(reported[-1]).rglob("*#*")]
    assert left == [], "what killed writers had begun is swept away"


def test_several_at_once_one_works_and_the_others_take_it_up(foreign: Path) -> None:
    processes = [started(foreign) for _ in range(3)]
    reported = [finish(process) for process in processes]
    assert len({lines[-1] for lines in reported}) == 1
    workers = [lines for lines in reported if any("to tokenise" in line for line in lines)]
    assert len(workers) == 1
    assert all("reused" in lines[-2] for lines in reported if lines is not workers[0])
    assert contents(Folder(reported[0][-1])) == contents(make(foreign, "alone"))


def test_the_lock_of_a_killed_holder_does_not_block(foreign: Path) -> None:
    code = (
        "import sys, time; from corpusmill.common.storage import Folder; from corpusmill.train.data.texts.token_set import alone\n"
        "with alone(Folder(sys.argv[1]), print): print('held', flush=True); time.sleep(600)"
    )
    inputs = module.survey(str(foreign), str(foreign.parent / "tokenizer.json"))
    place = str(foreign.parent / "cache" / inputs.key(module.VERSION, BLOCK))
    environment = {**os.environ, "PYTHONPATH": IMPORT_PATH}
    holder = subprocess.Popen(
        [sys.executable, "-c", code, place], stdout=subprocess.PIPE, env=environment, cwd=ROOT
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    waiting = started(foreign)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == f"texts: another process makes {place}; waiting for it\n"
    holder.kill()
    holder.communicate()
    assert finish(waiting)[-1] == place


def test_a_disk_without_locks(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    logged: list[str] = []
    tokenizer = str(foreign.parent / "tokenizer.json")
    token_set(str(foreign), str(foreign.parent / "cache"), tokenizer=tokenizer, log=logged.append)
    assert "cannot be locked (No locks available); continuing without" in logged[0]


def test_a_cache_that_cannot_be_written(foreign: Path) -> None:
    (foreign.parent / "file").write_bytes(b"")
    with pytest.raises(UserError, match="data.token_cache: .*file/.*: cannot be written"):
        make(foreign, "file/cache")


@pytest.mark.s3
def test_from_and_to_an_object_store(
    foreign: Path, s3_server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    remote = Folder("s3://corpus/texts")
    for file in foreign.rglob("*.tar"):
        (remote / f"in/{file.relative_to(foreign)}").write(file.read_bytes())
    tokenizer = str(foreign.parent / "tokenizer.json")
    logged: list[str] = []
    folder = token_set(f"{remote}/in", f"{remote}/cache", tokenizer=tokenizer, log=logged.append)
    here, there = contents(make(foreign)), contents(folder)
    skip = ("scratch/", "manifest.json")  # hold the keys, in which the store's tags are
    assert {name: data for name, data in there.items() if not name.startswith(skip)} == {
        name: data for name, data in here.items() if not name.startswith(skip)
    }
    token_set(f"{remote}/in", f"{remote}/cache", tokenizer=tokenizer, log=logged.append)
    assert "reused" in logged[-1] and documents(folder) == documents(make(foreign))


@pytest.mark.s3
def test_processes_of_one_machine_share_the_work_for_an_object_store(
    foreign: Path, s3_server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    processes = [started(foreign, "s3://corpus/shared") for _ in range(2)]
    reported = [finish(process) for process in processes]
    assert reported[0][-1] == reported[1][-1]
    assert sum("to tokenise" in line for lines in reported for line in lines) == 1
    assert contents(Folder(reported[0][-1])) == contents(make(foreign))


@pytest.mark.s3
def test_the_same_work_twice_in_an_object_store_does_no_harm(
    foreign: Path, s3_server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As processes of two machines do it: each has a folder of its own for locks."""
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    folders = [foreign.parent / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    processes = [started(foreign, "s3://corpus/twice", TMPDIR=str(folder)) for folder in folders]
    reported = [finish(process) for process in processes]
    assert reported[0][-1] == reported[1][-1]
    assert contents(Folder(reported[0][-1])) == contents(make(foreign))
