"""Deduplication with everything against it: mistakes on the command line, a damaged index, Ctrl-C, and death
between any two writes of a change of an index."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import corpusmill as front_door
from schemas.storage import Folder
from tests.conftest import ROOT
from tests.e2e.cli import corpusmill, difference, published
from tests.pipeline.dedup.helpers import edited, words

pytestmark = pytest.mark.xdist_group("e2e")

Main = Callable[..., tuple[int, str]]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Main:
    """The command line in this process: (exit code, what it said on stderr)."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["corpusmill", *map(str, arguments)])
        capsys.readouterr()
        try:
            front_door.main()
        except SystemExit as end:
            code = end.code
        return (code if isinstance(code, int) else 0), capsys.readouterr().err

    return run


def write_crawls(folder: Path) -> None:
    """`a.jsonl` and `b.jsonl`: families of near-copies and copies, in both."""
    generator = random.Random(50)
    texts = []
    for _ in range(40):
        text = " ".join(words(generator, generator.randint(20, 120)))
        texts += [edited(generator, text, generator.randint(0, 3)) for _ in range(generator.randint(1, 5))]
    generator.shuffle(texts)
    half = len(texts) // 2
    for name, mine in (("a", texts[:half]), ("b", texts[half:])):
        lines = [json.dumps({"id": f"{name}{i}", "text": text}) for i, text in enumerate(mine)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def adding(folder: Path, name: str, index: Path, out: Path) -> list[str]:
    return [
        "dedup", str(folder / f"{name}.jsonl"), str(out), "--index", str(index), "--id-column", "id",
        "--workers", "0", "--quiet", "--set", "ingest.partition_mb=0.03",
    ]  # fmt: skip


def taking(file: Path, index: Path, out: Path) -> list[str]:
    return [
        "dedup", str(out), "--index", str(index), "--takedown", str(file), "--workers", "0", "--quiet",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a.jsonl`, `b.jsonl`; `index`: with the first added; `both`: with both; `list`: documents of both; what
    came of the second addition in `second`, of the takedown of the list in `down`."""
    folder = tmp_path_factory.mktemp("crawls")
    write_crawls(folder)
    corpusmill(*adding(folder, "a", folder / "index", folder / "first"))
    shutil.copytree(folder / "index", folder / "both")
    corpusmill(*adding(folder, "b", folder / "both", folder / "second"))
    (folder / "list").write_text("".join(f"{name}{i}\n" for name in "ab" for i in range(0, 40, 4)))
    shutil.copytree(folder / "both", folder / "less")
    corpusmill(*taking(folder / "list", folder / "less", folder / "down"))
    return folder


def other(one: Path, two: Path) -> list[str]:
    """Published files that are not the same; `run.json` names the index, which lies elsewhere."""
    return [name for name in difference(published(one), published(two)) if name != "run.json"]


def one_line(error: str, *said: str) -> None:
    """One line, without a traceback, that says these things."""
    assert error.startswith("error: ") and error.count("\n") == 1, error
    for part in said:
        assert part in error, error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--keep", "two"], ["dedup.keep", "'two'", "one, none, all, or a number"]),
        (["--keep", "0"], ["dedup.keep", "from 1 on"]),
        (["--keep-order", "size"], ["dedup.keep_order", "'size'", "source_priority, length, date, doc_id", "signal:", "metadata:"]),
        (["--keep-order", "date", "--keep-order", "date"], ["dedup.keep_order", "once"]),
        (["--set", "dedup.remove_only_from=[crawl]"], ["dedup.remove_only_from", "'crawl'", "sources are input"]),
        (["--recall", "0.9999", "--similarity", "0.05"], ["dedup.recall", "raise dedup.num_perm to", "lower dedup.recall to"]),
        (["--num-perm", "4"], ["dedup.num_perm", "greater than or equal to 8"]),
        (["--bands", "5"], ["bands and rows"]),
        (["--bands", "50", "--rows", "50"], ["2500", "num_perm"]),
        (["--preset", "nemo"], ["dedup.preset", "'nemo'", "'corpusmill' or 'datatrove'"]),
        (["--preset", "datatrove", "--shingle", "char"], ["preset datatrove", "word shingles"]),
        (["--lines", "word"], ["dedup.lines", "'word'", "'line', 'paragraph' or 'sentences'"]),
        (["--substrings", "3"], ["dedup.substrings.min_tokens", "greater than or equal to 8"]),
        (["--index", "@/new", "--url"], ["index", "not together with url"]),
        (["--index", "@/new", "--lines", "line"], ["index", "not together with"]),
        (["--set", "dedup.similarty=0.7"], ["similarty", "did you mean 'similarity'"]),
        (["--takedown", "@/list"], ["--takedown", "OUT alone"]),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line(
    main: Main, crawls: Path, tmp_path: Path, arguments: list[str], said: list[str]
) -> None:
    given = [argument.replace("@", str(crawls)) for argument in arguments]
    code, error = main("dedup", crawls / "a.jsonl", tmp_path / "out", "--workers", "0", "--quiet", *given)
    assert code == 2
    one_line(error, *said)
    assert not (tmp_path / "out").exists() and not (crawls / "new").exists(), "nothing was begun"


@pytest.mark.parametrize(
    ("arguments", "said"),
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
def test_a_wrong_path_is_told_in_one_line_and_changes_nothing(
    main: Main, crawls: Path, tmp_path: Path, arguments: list[str], said: list[str]
) -> None:
    (crawls / "empty").write_text("# nobody\n\n")
    (crawls / "unknown").write_text("somebody\nelse\n")
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
    one_line(error, *said)
    assert difference(before, published(index)) == []
    assert not out.exists(), "nothing was begun"


def test_a_mistake_in_a_process_of_its_own(crawls: Path, tmp_path: Path) -> None:
    result = corpusmill("dedup", crawls / "a.jsonl", tmp_path / "out", "--keep", "some", check=False)
    assert result.returncode == 2 and result.stdout == ""
    one_line(result.stderr, "allowed are one, none, all")


# What an index cannot do without, and nothing can make anew: an addition reads all of it.
NEEDED = (
    "records/sketch/000000.json", "records/sketch/000000.texts", "records/sketch/000000.bands",
    "records/sketch/000000.docs", "records/sets/000000.json", "records/sets/000000.nodes",
    "records/sets/000000.sets", "records/names/000000.json", "records/names/000000.ids",
    "records/names/000000.parquet", "records/status/0001/000000.members",
)  # fmt: skip
DAMAGES = ("truncate", "flip", "delete")


def damage(file: Path, kind: str, seed: int = 0) -> None:
    data = bytearray(file.read_bytes())
    if kind == "delete":
        file.unlink()
    elif kind == "truncate":
        file.write_bytes(bytes(data[: len(data) // 2]))
    else:
        place = random.Random(seed).randrange(len(data))
        data[place] ^= 1 << seed % 8
        file.write_bytes(bytes(data))


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", NEEDED)
def test_damage_of_an_index_stops_the_addition_or_does_no_harm(
    main: Main, crawls: Path, tmp_path: Path, name: str, kind: str
) -> None:
    """Exit code 1 and one line that names the file; or it was not needed, and the result is the right one."""
    index = tmp_path / "index"
    shutil.copytree(crawls / "index", index)
    damage(index / name, kind)
    code, error = main(*adding(crawls, "b", index, tmp_path / "out"))
    if code == 0:
        assert other(crawls / "second", tmp_path / "out") == []
        return
    assert code == 1
    one_line(error, name.removeprefix("records/"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", NEEDED)
def test_damage_of_an_index_stops_the_takedown_or_does_no_harm(
    main: Main, crawls: Path, tmp_path: Path, name: str, kind: str
) -> None:
    index = tmp_path / "index"
    shutil.copytree(crawls / "both", index)
    damage(index / name, kind)
    code, error = main(*taking(crawls / "list", index, tmp_path / "out"))
    if code == 0:
        assert other(crawls / "down", tmp_path / "out") == []
        return
    assert code == 1
    one_line(error, name.removeprefix("records/"))


def test_the_list_of_an_index_is_needed_whole(main: Main, crawls: Path, tmp_path: Path) -> None:
    for kind, said in (("truncate", "not an index of dedup"), ("empty", "not an index of dedup")):
        index = tmp_path / kind
        shutil.copytree(crawls / "index", index)
        if kind == "empty":
            (index / "index.json").write_bytes(b"")
        else:
            damage(index / "index.json", kind)
        code, error = main(*adding(crawls, "b", index, tmp_path / "out"))
        assert code == 1
        one_line(error, "index.json", said)


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_in_the_list_of_an_index(main: Main, crawls: Path, tmp_path: Path, seed: int) -> None:
    """Never another result: it stops the addition, or does not matter."""
    index = tmp_path / "index"
    shutil.copytree(crawls / "index", index)
    damage(index / "index.json", "flip", seed)
    code, error = main(*adding(crawls, "b", index, tmp_path / "out"))
    if code == 0:
        assert other(crawls / "second", tmp_path / "out") == []
    else:
        assert error.startswith("error: ") and "Traceback" not in error


def test_an_index_without_its_list_is_no_index(main: Main, crawls: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    shutil.copytree(crawls / "index", index)
    (index / "index.json").unlink()
    code, error = main(*taking(crawls / "list", index, tmp_path / "out"))
    assert code == 2
    one_line(error, "no index there")


class Death(BaseException):
    """Stands for SIGKILL: nothing catches it."""


class Mortal:
    """Dies before the change of a file of a given number, counted over writes and deletions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.done = -1, 0
        write, create, delete = Folder.write, Folder.create, Folder.delete

        def wrapped(real: Any) -> Any:
            def change(folder: Folder, *given: Any) -> Any:
                if self.left == 0:
                    raise Death
                self.left -= 1
                self.done += 1
                return real(folder, *given)

            return change

        monkeypatch.setattr(Folder, "write", wrapped(write))
        monkeypatch.setattr(Folder, "create", wrapped(create))
        monkeypatch.setattr(Folder, "delete", wrapped(delete))


@pytest.mark.slow
@pytest.mark.parametrize("change", ["addition", "takedown"])
def test_a_change_of_an_index_killed_between_its_last_writes(
    main: Main, crawls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """At each of its last thirty changes of a file and at some before: done again, it publishes what it would
    have. The moments after the index has taken the change and before its output is whole are among them."""

    def command(index: Path, out: Path) -> list[str]:
        if change == "addition":
            return adding(crawls, "b", index, out)
        return taking(crawls / "list", index, out)

    start = crawls / ("index" if change == "addition" else "both")
    index, out = tmp_path / "index", tmp_path / "out"
    mortal = Mortal(monkeypatch)
    shutil.copytree(start, index)
    assert main(*command(index, out))[0] == 0
    total, expected = mortal.done, (published(out), published(index))
    assert total > 60
    wrong = {}
    for number in [*range(0, total - 30, 31), *range(total - 30, total)]:
        shutil.rmtree(index)
        shutil.rmtree(out)
        shutil.copytree(start, index)
        mortal.left = number
        with pytest.raises(Death):
            main(*command(index, out))
        mortal.left = -1
        code, error = main(*command(index, out))
        found = difference(expected[0], published(out)) + difference(expected[1], published(index))
        if code or found:
            wrong[total - number] = error or found
    assert not wrong, f"{change}, changes before the end: {wrong}"


def test_nothing_of_a_document_is_left_in_an_index_after_its_takedown(main: Main, tmp_path: Path) -> None:
    """Neither its text nor its id, its own id or its words' hashes, in any file."""
    generator = random.Random(51)
    text = " ".join(words(generator, 200))
    secret = edited(generator, text, 1) + " " + " ".join(words(generator, 4))
    lines = [
        {"id": "kept", "text": text},
        {"id": "secret-one", "text": secret},
        {"id": "x", "text": "one more"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    index = tmp_path / "index"
    assert main(*adding(tmp_path, "a", index, tmp_path / "first"))[0] == 0
    held = {str(file.relative_to(index)): file.read_bytes() for file in index.rglob("*") if file.is_file()}
    words_of = [word.encode() for word in secret.split()]
    assert not [name for name, data in held.items() if any(word in data for word in words_of)], "no text"
    from pipeline.publish import read_table

    (file,) = (index / "records/names").glob("*.parquet")
    names = read_table(Folder(file)).to_pylist()
    identity = next(row["doc_id"] for row in names if row["source_id"] == "secret-one")
    (tmp_path / "list").write_text("secret-one\n")
    assert main(*taking(tmp_path / "list", index, tmp_path / "down"))[0] == 0
    halves = [identity[i : i + 8][::-1] for i in (0, 8)]
    left = [
        str(file.relative_to(index))
        for file in sorted(index.rglob("*"))
        if file.is_file() and any(part in _plain(file) for part in (identity, *halves, b"secret-one"))
    ]
    assert left == []


def _plain(file: Path) -> bytes:
    """A file's bytes; of a table its values."""
    if file.suffix != ".parquet":
        return file.read_bytes()
    from pipeline.publish import read_table

    rows = read_table(Folder(file)).to_pylist()
    return b"\n".join(
        value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row.values()
    )


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
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "corpusmill", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
        cwd=ROOT, text=True, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and sum(1 for _ in Folder(out).list()) < count:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT) if whole else process.send_signal(signal.SIGINT)
    said, error = process.communicate(timeout=60)
    return process.returncode, said, error


@pytest.mark.parametrize("whole", [False, True], ids=["driver", "terminal"])
def test_ctrl_c_says_how_to_go_on(tmp_path: Path, whole: bool) -> None:
    generator = random.Random(52)
    texts = [" ".join(words(generator, 150)) for _ in range(600)]
    texts += [edited(generator, text, 2) for text in texts[:400]]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = tmp_path / "out"
    command = [
        "dedup", str(tmp_path / "docs.jsonl"), str(out), "--workers", "2", "--set", "ingest.partition_mb=0.1",
    ]  # fmt: skip
    code, said, error = interrupted(command, out, 90, whole)
    assert code == 130, error
    assert "run the same command to go on" in error and "Traceback" not in error, error
    assert said == "" and not (out / "manifest.json").exists()
    result = corpusmill(*command)
    assert "ingest" in result.stdout and "finished and valid" in result.stderr
    corpusmill(*command[:2], str(tmp_path / "unbroken"), *command[3:])
    assert difference(published(tmp_path / "unbroken"), published(out)) == []
