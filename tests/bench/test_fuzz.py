"""The fuzz bench finds what it looks for: with a reader that is broken on purpose it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import _fuzz_check, _fuzz_mutants, _fuzz_peers, fuzz
from bench._fuzz_formats import FORMATS
from corpusmill.pipeline.ingest import readers
from corpusmill.pipeline.ingest.records import Document, Event, Reading, Rejected
from tests.pipeline.ingest.helpers import one_by_one


@pytest.mark.parametrize("name", FORMATS)
def test_mutants_are_those_of_their_seed(name: str) -> None:
    first = [_fuzz_mutants.make(name, 1, number) for number in range(30)]
    assert first == [_fuzz_mutants.make(name, 1, number) for number in range(30)]
    assert [mutant.data for mutant in first] != [_fuzz_mutants.make(name, 2, n).data for n in range(30)]
    assert len({mutant.codec for mutant in first}) == (6 if FORMATS[name].compressed else 1)
    assert all(mutant.damage for mutant in first[6:])


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_without_damage_is_read_alike_by_all(tmp_path: Path, name: str) -> None:
    for number in range(6):
        mutant = _fuzz_mutants.make(name, 3, number)
        wrong, _, differences = _fuzz_check.faults(mutant, tmp_path)
        assert not wrong
        assert not [kind for kind in +differences if kind.startswith("more")]
        marks = {piece.mark for piece in mutant.pieces if piece.mark}
        for peer, texts in _fuzz_peers.texts(mutant).items():
            assert texts.keys() == marks, peer


def _broken(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """The JSON Lines reader with a fault."""
    from corpusmill.pipeline.ingest.readers import jsonl

    read = jsonl.read

    def faulty(reading: Reading) -> Iterator[Event]:
        for number, event in enumerate(one_by_one(read(reading))):
            if number != 5 or not isinstance(event, Document):
                yield event
            elif change == "raises":
                raise KeyError(event.record)
            elif change == "quotes":
                yield Rejected(event.record, "ingest.broken", event.text)
            elif change == "number twice":
                yield event
                yield event
            elif change == "no reason":
                yield Rejected(event.record, "ingest.broken", "")

    monkeypatch.setattr(readers, "reader_of", lambda format: faulty)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("loses", "lost in silence"),
        ("raises", "an exception that no reader expected"),
        ("quotes", "holds text"),
        ("number twice", "a doc_id twice"),
        ("no reason", "without rule or detail"),
    ],
)
def test_a_broken_reader_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, expected: str
) -> None:
    mutant = _fuzz_mutants.make("jsonl", 1, 0)
    assert not _fuzz_check.faults(mutant, tmp_path)[0]
    _fuzz_check._expected_of.cache_clear()
    _fuzz_check._expected(mutant, tmp_path)  # with the reader that works
    _broken(monkeypatch, change)
    assert any(expected in fault for fault in _fuzz_check.faults(mutant, tmp_path)[0])


def test_processes_give_the_same_results_whatever_their_number() -> None:
    one = fuzz.measure(5, 12, ["jsonl", "warc"], jobs=1)
    two = fuzz.measure(5, 12, ["jsonl", "warc"], jobs=2)
    for name in ("jsonl", "warc"):
        assert one[name].mutants == 12 and len(one[name].digests) == 12
        assert one[name].digests == two[name].digests
