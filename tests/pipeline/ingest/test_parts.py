"""Large files are read in parts, by tasks side by side: the same records as in one piece, each once."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.ingest import content, stage
from corpusmill.pipeline.ingest.content import LineCutter, RangeCutter
from corpusmill.pipeline.ingest.discover import InputFile, Part
from corpusmill.pipeline.ingest.raw_file import RawFile
from corpusmill.pipeline.ingest.readers import read_file
from corpusmill.pipeline.ingest.records import Reading
from corpusmill.pipeline.ingest.reread import RawFile as Again
from corpusmill.pipeline.ingest.reread import find_file
from corpusmill.pipeline.ingest.stage import Ingest
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.sources import Source
from corpusmill.schemas.stages import IngestParams
from tests.conftest import Serial
from tests.pipeline.filter.helpers import PROSE
from tests.pipeline.ingest.helpers import Result, ingest, one_by_one
from tests.web import Hub

PART = 20_000
SMALL = {"partition_mb": 0.01}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "LEAST_PART", PART)


def line(number: int) -> bytes:
    return json.dumps({"text": f"Text {number}. {PROSE}", "id": number}).encode() + b"\n"


def recipe_of(folder: Path) -> Recipe:
    return Recipe.model_validate({"name": "t", "sources": {"s": {"paths": [str(folder)]}}, "ingest": SMALL})


def several(result: Result) -> int:
    """How many units a file was read in."""
    return len({name.rpartition("-")[0] for name in result.names})


def same(one: Result, other: Result) -> None:
    """Both hold the same records, whatever partitions they are in."""

    def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: str(row["locator"]))

    assert ordered(one.docs) == ordered(other.docs)
    assert ordered(one.decisions) == ordered(other.decisions)
    assert one.counters == other.counters


LINES = st.one_of(
    st.integers(0, 9).map(lambda n: b'{"text": "a text of some length, number %d"}' % n),
    st.sampled_from(
        [b"", b" ", b"\r", b"\t \r", b"not json", b"[1]", b'{"text": 7}', b"\xff\xfe", b"x" * 300]
    ),
)


@given(
    st.sampled_from([b"", codecs.BOM_UTF8, codecs.BOM_UTF8 + b" ", b" " + codecs.BOM_UTF8 + b"\n", b"\n\n"]),
    st.lists(LINES, max_size=60), st.sampled_from([b"", b"\n", b" ", b"\n \n"]), st.integers(20, 400), st.integers(8, 2_000),
)  # fmt: skip
@example(b"", [codecs.BOM_UTF16_LE, b'{"text": "a text of some length, number 1"}'] * 4, b"\n", 20, 8)
@example(b"", [codecs.BOM_UTF16_BE + b" ", b'{"text": "a text of some length, number 1"}'] * 4, b"\n", 20, 8)
@example(b"", [codecs.BOM_UTF16_LE + b"x", b'{"text": "a text of some length, number 1"}'] * 4, b"\n", 20, 8)
def test_parts_of_lines_give_the_records_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    start: bytes,
    lines: list[bytes],
    end: bytes,
    size: int,
    block: int,
) -> None:
    data = start + b"\n".join(lines) + end
    file = tmp_path_factory.mktemp("parts") / "a.jsonl"
    file.write_bytes(data)
    source, params = Source(paths=[str(file)]), IngestParams(max_record_mb=200 / 2**20)
    whole = InputFile("s", "a.jsonl", str(file), len(data), "tag", "jsonl")
    cutter = LineCutter(len(data), size)
    for at in range(0, len(data), block):
        cutter.take(data[at : at + block])
    parts = cutter.parts()
    begins = [begin for begin, _, _ in parts] or [0]
    assert begins == sorted(set(begins)) and all(data[at - 1 : at] == b"\n" for at in begins[1:])
    found = []
    for number, ((begin, record, digest), stop) in enumerate(
        zip(parts, [*begins[1:], len(data)], strict=False)
    ):
        piece = InputFile(
            "s", "a.jsonl", str(file), len(data), "tag", "jsonl", part=Part(number, begin, stop, record)
        )
        reading = Reading(piece, source, params)
        found += list(one_by_one(read_file(reading)))
        assert reading.unchanged(digest)
    if parts:
        assert found == list(one_by_one(read_file(Reading(whole, source, params))))


def test_a_line_longer_than_a_part_and_one_of_white_space() -> None:
    data = b"a\n" + b"x" * 500 + b"\n" + b"b\n" * 300
    cutter = LineCutter(len(data), 100)
    cutter.take(data)
    assert [(begin, record) for begin, record, _ in cutter.parts()] == [
        (0, 0),
        (503, 2),
        (601, 51),
        (701, 101),
        (801, 151),
        (901, 201),
        (1001, 251),
    ]
    cutter = LineCutter(20_000, 100)
    cutter.take((b"b\n" * 5_000).replace(b"b\nb\n", b" " * 5_000 + b"\nb\n", 1)[:20_000])
    assert cutter.parts() == []  # whether a line so long counts as a record depends on a setting


@given(st.binary(min_size=10, max_size=300), st.sets(st.integers(1, 9)), st.integers(1, 50))
def test_ranges_are_hashed_whatever_the_blocks(data: bytes, cuts: set[int], block: int) -> None:
    begins = [0, *sorted(cuts)]
    cutter = RangeCutter([(begin, begin) for begin in begins])
    for at in range(0, len(data), block):
        cutter.take(data[at : at + block])
    for (begin, _, digest), end in zip(cutter.parts(), [*begins[1:], len(data)], strict=True):
        assert digest == stage.xxhash.xxh3_128_hexdigest(data[begin:end])


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a"])
def test_json_lines_of_any_name(
    tmp_path: Path, name: str, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join([line(n) if n % 7 else b" \n" for n in range(200)]) + b'{"text": "cut'
    (tmp_path / name).write_bytes(data)
    parts = ingest(tmp_path, params=SMALL)
    assert 3 < several(parts) <= len(data) // PART + 1
    assert parts.locators()[-1] == f"{name}#{len(parts.docs) - 1}" and parts.rules == [
        "ingest.malformed_json"
    ]
    monkeypatch.setattr(stage, "LEAST_PART", 1 << 30)
    whole = ingest(tmp_path, params=SMALL)
    assert several(whole) == 1
    same(parts, whole)
    source = Source(paths=[str(tmp_path)])
    last = parts.docs[-1]
    found = find_file("s", source, name)
    assert found is not None
    assert Again(found, source, IngestParams()).text(last["locator"].rpartition("#")[2]) == last["text"]


def test_what_cannot_be_cut_is_one_task(tmp_path: Path, small_parts: None) -> None:
    data = b"".join(map(line, range(200)))
    (tmp_path / "utf16.jsonl").write_bytes(data.decode().encode("utf-16"))
    (tmp_path / "bare.jsonl").write_bytes(data.decode().encode("utf-16-le"))
    (tmp_path / "array.json").write_bytes(b"[" + data.strip().replace(b"\n", b",\n") + b"]")
    (tmp_path / "long.jsonl").write_bytes(b'{"text": "' + b"x" * 3 * PART + b'"}')
    result = ingest(tmp_path, params=SMALL)
    assert len(result.docs) == 601 and not any("-p0" in name for name in result.names)


def table(rows: int, per_group: int, folder: Path, name: str = "a.parquet", **options: Any) -> Path:
    texts = [f"Row {n}. {PROSE}" for n in range(rows)]
    pq.write_table(
        pa.table({"text": texts, "n": list(range(rows))}), folder / name, row_group_size=per_group, compression=None,
        use_dictionary=False, **options,
    )  # fmt: skip
    return folder / name


def test_parquet_is_cut_between_row_groups(
    tmp_path: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = table(200, 10, tmp_path, write_page_checksum=True)
    data = bytearray(file.read_bytes())
    data[data.index(b"Row 77.") + 20] ^= 1  # one row group is lost
    file.write_bytes(data)
    parts = ingest(tmp_path, params=SMALL)
    assert several(parts) > 3 and len(parts.docs) == 190 and parts.rules == ["ingest.damaged"]
    monkeypatch.setattr(stage, "LEAST_PART", 1 << 30)
    same(parts, ingest(tmp_path, params=SMALL))


def test_a_missing_column_is_one_row_for_each_part(tmp_path: Path, small_parts: None) -> None:
    """Each with the rows of its part."""
    table(200, 10, tmp_path)
    result = ingest(tmp_path, params=SMALL, text_column="content")
    assert several(result) > 3 and set(result.rules) == {"ingest.no_text"}
    assert sum(row["value"] for row in result.decisions) == 200


def test_bytes_at_the_end_are_work_for_the_last_part(tmp_path: Path, small_parts: None) -> None:
    data = b"".join(map(line, range(200)))

    def units() -> dict[str, str]:
        recipe = recipe_of(tmp_path)
        found = Ingest(recipe).units()
        assert sum(unit.size for unit in found) == (tmp_path / "a.jsonl").stat().st_size
        return {unit.name: unit.key for unit in found}

    (tmp_path / "a.jsonl").write_bytes(data)
    before = units()
    (tmp_path / "a.jsonl").write_bytes(data + line(200))
    after = units()
    assert list(after) == sorted(after) and len(set(after.values())) == len(after)
    assert [name for name in after if before.get(name) != after[name]] == [max(before)]


def test_a_file_is_read_once_for_its_parts_and_not_again_while_it_is_the_same(
    tmp_path: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b"".join(map(line, range(200))))
    table(200, 10, tmp_path / "in")
    read: list[str] = []
    digest = RawFile.digest

    def counted(file: RawFile, *args: Any) -> str:
        read.append(file.url.rpartition("/")[2])
        return digest(file, *args)

    def run(partition_mb: float = 0.01) -> Run:
        config = {
            "name": "t", "sources": {"s": {"paths": [str(tmp_path / "in")]}}, "stages": ["ingest"],
            "ingest": {"partition_mb": partition_mb},
        }  # fmt: skip
        return Run(Recipe.model_validate(config), Folder(tmp_path / "run"), Serial())

    monkeypatch.setattr(content.RawFile, "digest", counted)
    manifest = run().execute()[0]
    assert manifest.counts.kept == 400
    assert read[:2] == [
        "a.jsonl",
        "a.parquet",
    ]  # those after them: the parts of Parquet, held to their hashes
    assert not verify(Folder(tmp_path / "run")).problems
    read.clear()
    assert len(run().plan()[0].stage.units()) > 6  # type: ignore[attr-defined]
    assert read == []
    assert len(run(1.0).plan()[0].stage.units()) == 2  # type: ignore[attr-defined]
    assert read == ["a.jsonl", "a.parquet"][: len(read)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_part_that_changes_before_it_is_read_is_noticed(
    tmp_path: Path, small_parts: None, name: str
) -> None:
    if name == "a.jsonl":
        (tmp_path / name).write_bytes(b"".join(map(line, range(200))))
    else:
        table(200, 10, tmp_path)
    made = Ingest(recipe_of(tmp_path))
    units = made.units()
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data.replace(b"150. ", b"151. ", 1))
    changed = []
    for unit in units:
        try:
            list(made.read(unit))
        except WorkError as error:
            assert f"sources.s: {name} changed while it was read" in str(error)
            changed.append(unit.name)
    assert len(changed) == 1 and len(units) > 3


def test_300_mb_are_work_for_16_cores(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        row = json.dumps({"text": PROSE * 200}).encode() + b"\n"
        for _ in range(300 * 2**20 // len(row)):
            file.write(row)
    recipe = Recipe.model_validate({"name": "t", "sources": {"s": {"paths": [str(tmp_path)]}}})
    sizes = [unit.size / 2**20 for unit in Ingest(recipe).units()]
    assert 16 <= len(sizes) <= 20 and max(sizes) < 25 and min(sizes) > 8


def test_a_very_large_file_has_larger_parts(
    tmp_path: Path, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(map(line, range(200))))
    monkeypatch.setattr(content, "MANY_PARTS", 3)
    sizes = [unit.size for unit in Ingest(recipe_of(tmp_path)).units()]
    assert len(sizes) == 2 and sizes[0] > 2 * PART


@pytest.mark.s3
def test_in_object_storage(tmp_path: Path, small_parts: None, s3: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(map(line, range(200))))
    table(200, 10, tmp_path)
    for path in tmp_path.iterdir():
        (Folder(s3) / "in" / path.name).write(path.read_bytes())
    here, there = ingest(tmp_path, params=SMALL), ingest(f"{s3}/in", params=SMALL)
    assert several(there) > 6 and there.names == here.names
    same(here, there)


def test_parquet_of_the_hub(
    tmp_path: Path, hub: Hub, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning reads the footers alone."""
    file = table(200, 10, tmp_path)
    hub.repo("org/set", {"a.parquet": file.read_bytes(), "b.jsonl": b"".join(map(line, range(200)))})

    def units() -> Iterator[str]:
        recipe = {"name": "t", "sources": {"s": {"paths": ["hf://datasets/org/set"]}}, "ingest": SMALL}
        for unit in Ingest(Recipe.model_validate(recipe)).units():
            yield unit.name

    names = list(units())
    assert sum("a_parquet" in name for name in names) > 3 and sum("b_jsonl" in name for name in names) == 1
    parts = ingest("hf://datasets/org/set", params=SMALL)
    monkeypatch.setattr(stage, "LEAST_PART", 1 << 30)
    same(parts, ingest("hf://datasets/org/set", params=SMALL))
