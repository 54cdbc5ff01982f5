"""A damaged index, and death between any two writes of a change of it; what is left of a document taken down."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.owner import OWNER
from corpusmill.pipeline.engine.publish import read_table
from tests.e2e.cli import difference, published
from tests.faults.dedup import Main, adding, one_line, other, taking
from tests.pipeline.dedup.helpers import edited, words
from tests.pipeline.dedup.vandal import DAMAGES, Mortal, damage

# What an index cannot do without, and nothing can make again: an addition reads all of it.
NEEDED = (
    "records/sketch/000000.json", "records/sketch/000000.texts", "records/sketch/000000.bands",
    "records/sketch/000000.docs", "records/sets/000000.json", "records/sets/000000.nodes",
    "records/sets/000000.sets", "records/names/000000.json", "records/names/000000.ids",
    "records/names/000000.parquet", "records/status/0001/000000.members",
)  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", NEEDED)
def test_damage_of_an_index_stops_the_addition_or_does_no_harm(
    main: Main, crawls: Path, tmp_path: Path, name: str, kind: str
) -> None:
    """Exit code 1 and one line that names the file; or it was not needed, and the result is the right one."""
    index = tmp_path / "index"
    shutil.copytree(crawls / "index", index)
    damage(Folder(index), name, kind, random.Random(0))
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
    damage(Folder(index), name, kind, random.Random(0))
    code, error = main(*taking(crawls / "list", index, tmp_path / "out"))
    if code == 0:
        assert other(crawls / "down", tmp_path / "out") == []
        return
    assert code == 1
    one_line(error, name.removeprefix("records/"))


def test_the_list_of_an_index_is_needed_whole(main: Main, crawls: Path, tmp_path: Path) -> None:
    for kind, message in (("truncate", "not an index of dedup"), ("empty", "not an index of dedup")):
        index = tmp_path / kind
        shutil.copytree(crawls / "index", index)
        if kind == "empty":
            (index / "index.json").write_bytes(b"")
        else:
            damage(Folder(index), "index.json", kind, random.Random(0))
        code, error = main(*adding(crawls, "b", index, tmp_path / "out"))
        assert code == 1
        one_line(error, "index.json", message)


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_in_the_list_of_an_index(main: Main, crawls: Path, tmp_path: Path, seed: int) -> None:
    """Never another result: it stops the addition, or does not matter."""
    index = tmp_path / "index"
    shutil.copytree(crawls / "index", index)
    damage(Folder(index), "index.json", "flip", random.Random(seed))
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


@pytest.mark.slow
@pytest.mark.parametrize("change", ["addition", "takedown"])
def test_a_change_of_an_index_killed_between_its_last_writes(
    main: Main, crawls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Among its last thirty changes of a file at the first and the last in each folder, and at some before: done again, it
    publishes what it would have. The moments after the index has taken the change and before its output is whole are among them. What a kill would
    leave is copied from one run; the real ones are in `tests/e2e/test_dedup_index.py`."""

    def command(index: Path, out: Path) -> list[str]:
        if change == "addition":
            return adding(crawls, "b", index, out)
        return taking(crawls / "list", index, out)

    start = crawls / ("index" if change == "addition" else "both")
    index, out, left = tmp_path / "index", tmp_path / "out", tmp_path / "left"
    mortal, places = Mortal(monkeypatch), list[str]()
    mortal.before = lambda file: places.append(file.parent.url)
    shutil.copytree(start, index)
    assert main(*command(index, out))[0] == 0
    total, expected = mortal.done, (published(out), published(index))
    assert total > 60
    ends = [n for n in range(1, total) if places[n] != places[n - 1]]
    last = {n for n in [total - 1, *ends, *(end - 1 for end in ends)] if n >= total - 30}
    moments = [*range(0, total - 30, total // 4), *sorted(last)]
    assert len(last) > 10

    def begin_again(from_index: Path, from_out: Path) -> None:
        for folder, source in ((index, from_index), (out, from_out)):
            shutil.rmtree(folder)
            shutil.copytree(source, folder, ignore=shutil.ignore_patterns(OWNER))

    def keep(_: Folder) -> None:
        if (number := mortal.done) in moments:
            shutil.copytree(index, left / f"{number}/index")
            out.mkdir(exist_ok=True)
            shutil.copytree(out, left / f"{number}/out")

    (tmp_path / "empty").mkdir()
    begin_again(start, tmp_path / "empty")
    mortal.done, mortal.before = 0, keep
    assert main(*command(index, out))[0] == 0
    assert mortal.done == total
    mortal.before = lambda file: None
    wrong = {}
    for number in moments:
        begin_again(left / f"{number}/index", left / f"{number}/out")
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
    rows = read_table(Folder(file)).to_pylist()
    return b"\n".join(
        value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row.values()
    )
