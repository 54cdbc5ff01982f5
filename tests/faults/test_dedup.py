"""Deduplication with everything against it: mistakes on the command line, Ctrl-C, what a kill left behind."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from tests.conftest import IMPORT_PATH, ROOT, shared
from tests.e2e.cli import corpusmill, difference, published
from tests.faults.dedup import Main, one_line
from tests.pipeline.dedup.helpers import edited, words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep", "two"], ["dedup.keep", "'two'", "one, none, all, or a number"]),
        (["--keep", "0"], ["dedup.keep", "of 1 or more"]),
        (["--keep-order", "size"], ["dedup.keep_order", "'size'", "source_priority, length, date, doc_id", "signal:", "metadata:"]),
        (["--keep-order", "date", "--keep-order", "date"], ["dedup.keep_order", "once"]),
        (["--set", "dedup.remove_only_from=[crawl]"], ["dedup.remove_only_from", "'crawl'", "sources are input"]),
        (["--recall", "0.9999", "--similarity", "0.05"], ["dedup.recall", "raise dedup.num_perm to", "lower dedup.recall to"]),
        (["--num-perm", "4"], ["dedup.num_perm", "greater than or equal to 8"]),
        (["--bands", "5"], ["bands and rows"]),
        (["--bands", "50", "--rows", "50"], ["2500", "num_perm"]),
        (["--preset", "nemo"], ["dedup.preset", "'nemo'", "'corpusmill', 'code', 'short' or 'datatrove'"]),
        (["--preset", "datatrove", "--shingle", "char"], ["preset datatrove", "word shingles"]),
        (["--lines", "word"], ["dedup.lines", "'word'", "'line', 'paragraph' or 'sentences'"]),
        (["--substrings", "3"], ["dedup.substrings.min_tokens", "greater than or equal to 8"]),
        (["--index", "@/new", "--url"], ["index", "cannot be used with url"]),
        (["--index", "@/new", "--lines", "line"], ["index", "cannot be used with"]),
        (["--set", "dedup.similarty=0.7"], ["similarty", "did you mean 'similarity'"]),
        (["--takedown", "@/list"], ["--takedown", "takes only OUT"]),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_line(
    main: Main, crawls: Path, tmp_path: Path, arguments: list[str], message: list[str]
) -> None:
    given = [argument.replace("@", str(crawls)) for argument in arguments]
    code, error = main("dedup", crawls / "a.jsonl", tmp_path / "out", "--workers", "0", "--quiet", *given)
    assert code == 2
    one_line(error, *message)
    assert not (tmp_path / "out").exists() and not (crawls / "new").exists(), "nothing was begun"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["@/c.jsonl", "OUT"], ["c.jsonl", "no such file", "did you mean"]),
        (["OUT"], ["IN", "OUT"]),
        (["OUT", "--takedown", "@/list"], ["--takedown", "--index DIR"]),
        (["OUT", "--index", "@/nowhere", "--takedown", "@/list"], ["nowhere", "no index there"]),
        (["OUT", "--index", "@/index", "--takedown", "@/nowhere"], ["nowhere", "not found", "each line"]),
        (["OUT", "--index", "@/index", "--takedown", "@/empty"], ["empty", "0 documents named"]),
        (["OUT", "--index", "@/index", "--takedown", "@/unknown"], ["unknown", "none of the 2 documents"]),
        (["OUT", "--index", "@/index", "--takedown", "@/list", "--shards", "@/nowhere"], ["nowhere", "no shards there"]),
    ],
)  # fmt: skip
def test_a_wrong_path_is_reported_in_one_line_and_changes_nothing(
    main: Main, crawls: Path, tmp_path: Path, arguments: list[str], message: list[str]
) -> None:
    index, out = tmp_path / "index", tmp_path / "out"
    shutil.copytree(crawls / "both", index)
    before = published(index)
    places = {"@/index": str(index), "@": str(crawls), "OUT": str(out)}
    given = []
    for argument in arguments:
        for name, place in places.items():
            argument = argument.replace(name, place)
        given.append(argument)
    code, error = main("dedup", *given, "--workers", "0", "--quiet")
    assert code == 2
    one_line(error, *message)
    assert difference(before, published(index)) == []
    assert not out.exists(), "nothing was begun"


def test_a_mistake_in_a_process_of_its_own(crawls: Path, tmp_path: Path) -> None:
    result = corpusmill("dedup", crawls / "a.jsonl", tmp_path / "out", "--keep", "some", check=False)
    assert result.returncode == 2 and result.stdout == ""
    one_line(result.stderr, "allowed are one, none, all")


def test_what_a_killed_writer_had_begun_is_swept_away(main: Main, crawls: Path, tmp_path: Path) -> None:
    """A local write goes to `name#1` first. What a kill leaves there must not stay in a finished output, where
    readers of a whole folder find it."""
    out = tmp_path / "out"
    command = ["dedup", crawls / "a.jsonl", out, "--workers", "0", "--quiet"]
    for name in ("documents/00000-000.parquet#1", "removals/00000-000.parquet#1", "scratch/sketch/0.bands#1"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(b"half a file")
    assert main(*command)[0] == 0
    assert [str(file.relative_to(out)) for file in out.rglob("*#*")] == []


def interrupted(command: Sequence[str], out: Path, count: int, whole: bool) -> tuple[int, str, str]:
    """SIGINT to the driver, or to all of its group as a terminal sends it, once `count` files are there."""
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "corpusmill", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
        cwd=ROOT, text=True, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and sum(1 for _ in Folder(out).list()) < count:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT) if whole else process.send_signal(signal.SIGINT)
    message, error = process.communicate(timeout=300)
    return process.returncode, message, error


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `docs.jsonl` and what deduplication makes of it when nobody interrupts it, `unbroken`."""

    def make(folder: Path) -> None:
        generator = random.Random(52)
        texts = [" ".join(words(generator, 150)) for _ in range(600)]
        texts += [edited(generator, text, 2) for text in texts[:400]]
        (folder / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        corpusmill(*deduplicate(folder, folder / "unbroken", workers=0))

    return shared(tmp_path_factory, "copied", make)


def deduplicate(folder: Path, out: Path, workers: int) -> list[str]:
    return [
        "dedup", str(folder / "docs.jsonl"), str(out), "--workers", str(workers), "--set", "ingest.partition_mb=0.1",
    ]  # fmt: skip


@pytest.mark.parametrize("whole", [False, True], ids=["driver", "terminal"])
def test_ctrl_c_says_how_to_go_on(copied: Path, tmp_path: Path, whole: bool) -> None:
    out = tmp_path / "out"
    code, message, error = interrupted(deduplicate(copied, out, workers=2), out, 90, whole)
    assert code == 130, error
    assert "run the same command to continue" in error and "Traceback" not in error, error
    assert message == "" and not (out / "manifest.json").exists()
    result = corpusmill(*deduplicate(copied, out, workers=0))
    assert "ingest" in result.stdout and "finished and valid" in result.stderr
    assert difference(published(copied / "unbroken"), published(out)) == []
