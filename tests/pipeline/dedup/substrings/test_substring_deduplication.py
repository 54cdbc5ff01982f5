"""The search against the definition, and what the definition promises."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Kept
from corpusmill.pipeline.dedup.substrings import anchor_kernels, substring_job
from corpusmill.pipeline.dedup.substrings.substring_deduplication import find
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.schemas.dedup import SubstringParams
from corpusmill.schemas.tables import SPANS
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, docs_of, partitions, words
from tests.pipeline.dedup.substrings.helpers import Corpus, Links, Place, search, tokenize

WORDS = ["a ", "b ", "c\n", "b, ", "É ", "é\u0301t ", "語", "ก็", "각 ", "x\u00ad"]


@st.composite
def texts(draw: Any) -> list[str]:
    """Texts put together from a few passages, their parts, repetitions and loose words."""
    alphabet = st.sampled_from(WORDS[: draw(st.integers(1, len(WORDS)))])
    passages = draw(st.lists(st.lists(alphabet, min_size=1, max_size=24), min_size=1, max_size=4))
    made = []
    for _ in range(draw(st.integers(1, 6))):
        parts: list[str] = []
        for _ in range(draw(st.integers(0, 5))):
            passage = draw(st.sampled_from(passages))
            start, stop = draw(st.integers(0, len(passage))), draw(st.integers(0, len(passage)))
            parts += passage[start:] + passage[:stop] if start > stop else passage[start:stop]
            parts += draw(st.lists(alphabet, max_size=3))
        made.append("".join(parts))
    return made


def docs_from(found: Sequence[str], sources: Sequence[str] = ("web",)) -> list[Doc]:
    return [Doc(text, f"{i}", sources[i % len(sources)]) for i, text in enumerate(found)]


ORDERS = st.sampled_from([({}, None), ({"b": 2, "c": -1}, None), ({"a": 1}, ["a", "c"]), ({}, [])])


@settings(max_examples=80)
@given(found=texts(), n=st.integers(8, 10), k=st.integers(2, 8), count=st.integers(1, 3), order=ORDERS)
@example(found=["a " * 100], n=8, k=4, count=1, order=({}, None))
@example(found=["a b c\n" * 30, "b c\na " * 5], n=8, k=4, count=2, order=({}, None))
def test_what_is_cut_is_what_the_definition_says(
    found: list[str], n: int, k: int, count: int, order: tuple[dict[str, int], list[str] | None]
) -> None:
    docs = docs_from(found, ["a", "b", "c"])
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as root:
        patch.setattr(anchor_kernels, "SHORTEST", k)
        result = search(Folder(root), docs, n, count, priorities=order[0], own=order[1])
    assert result.spans == Corpus(docs, n, *order).spans()


@settings(max_examples=30)
@given(texts(), ORDERS)
def test_later_places_go_and_first_ones_stay(
    found: list[str], order: tuple[dict[str, int], list[str] | None]
) -> None:
    """The guarantees in the package's docstring, checked on the result of the search."""
    n = 8
    docs = docs_from(found, ["a", "b", "c"])
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as root:
        patch.setattr(anchor_kernels, "SHORTEST", 4)
        spans = search(Folder(root), docs, n, 2, priorities=order[0], own=order[1]).spans
    corpus = Corpus(docs, n, *order)
    gone = corpus.which(spans)
    linked = Links()
    for places in corpus.places.values():
        for later in range(len(places)):
            for earlier in range(later):
                a, b = places[earlier], places[later]
                if (a.doc != b.doc or b.token >= a.token + n) and not corpus.guarded[b.doc]:
                    assert all(gone[b.doc][b.token : b.token + n]), "1: the later one is cut whole"
                for i in range(n):
                    linked.join(Place(a.doc, a.token + i), Place(b.doc, b.token + i))
    for doc, flags in enumerate(gone):
        assert not (corpus.guarded[doc] and any(flags))
        for token, out in enumerate(flags):
            first = linked.first(Place(doc, token))
            assert not gone[first.doc][first.token], "2: each token stays at the first of its places"
            assert not out or first < Place(doc, token)
            assert corpus.tokens[first.doc][first.token] == corpus.tokens[doc][token]


def repetitive(period: int, times: int) -> str:
    return "".join(f"w{i} " for i in range(period)) * times


@pytest.mark.parametrize(
    ("period", "times", "left"),
    [(1, 100, 12), (1, 23, 23), (1, 24, 12), (5, 40, 15), (12, 9, 12), (30, 4, 30)],
)
def test_repetitions_keep_their_first_window(tmp_path: Path, period: int, times: int, left: int) -> None:
    text = repetitive(period, times)
    result = search(Folder(tmp_path), docs_of([text]), 12)
    cut = sum(length for _, length in result.spans.get(docs_of([text])[0].id, []))
    assert len(tokenize(text)) - len(tokenize(text.encode()[len(text.encode()) - cut :].decode())) == left


def test_planted_passages_stay_whole_in_one_place(tmp_path: Path) -> None:
    """Apart from each other, with nothing else repeated, all copies but one go to the byte."""
    generator = random.Random(3)
    passages = [" ".join(words(generator, size)) + "\n" for size in (50, 51, 75, 120, 400)]
    made = []
    for i in range(60):
        parts = [" ".join(words(generator, 30)) + ". " for _ in range(4)]
        for passage in generator.sample(passages, 2 if i % 2 else 0):
            parts.insert(generator.randrange(1, 4), passage)
        made.append("".join(parts))
    docs = docs_of(made)
    result = search(Folder(tmp_path), docs, 50, 3)
    texts = {doc.id: doc.text.encode() for doc in docs}
    cut = sorted(texts[key][at : at + size] for key, found in result.spans.items() for at, size in found)
    copies = sum(text.count(passage) for text in made for passage in passages)
    joined = sum(size for found in result.spans.values() for _, size in found)
    assert joined == sum(
        (sum(text.count(p) for text in made) - 1) * len(p.encode()) for p in passages
    ) and len(cut) <= copies - len(passages)
    left = [without(texts[doc.id], result.spans.get(doc.id, [])).decode() for doc in docs]
    for passage in passages:
        assert sum(text.count(passage) for text in left) == 1
    again = search(Folder(tmp_path / "again"), docs_of(left), 50)
    assert again.spans == {}, "nothing is left to cut"


def without(text: bytes, spans: Sequence[tuple[int, int]]) -> bytes:
    for at, size in reversed(spans):
        text = text[:at] + text[at + size :]
    return text


def test_one_token_short_of_a_repeat(tmp_path: Path) -> None:
    shared = words(random.Random(1), 49)
    docs = docs_of([" ".join(["x", *shared, "y"]), " ".join(["z", *shared, "w"])])
    assert search(Folder(tmp_path / "49"), docs, 50).spans == {}
    assert search(Folder(tmp_path / "48"), docs, 49).counters["longest_repeat"] == 49


def test_the_last_separator_counts(tmp_path: Path) -> None:
    shared = " ".join(words(random.Random(1), 50))
    docs = docs_of([f"{shared}, and so on", f"{shared}. Or not"])
    assert search(Folder(tmp_path / "a"), docs, 50).spans == {}
    [[span]] = search(Folder(tmp_path / "b"), docs, 49).spans.values()
    assert span == (0, len(shared.rpartition(" ")[0]) + 1)


def test_who_stays(tmp_path: Path) -> None:
    shared = " ".join(words(random.Random(1), 60)) + " "
    docs = [Doc(f"{i} {shared}{i}", f"{i}", source) for i, source in enumerate("abcabc")]
    lowest = sorted(docs, key=lambda doc: doc.id)

    def stay(**params: Any) -> list[Doc]:
        name = str(len(list(tmp_path.iterdir())))
        result = search(Folder(tmp_path / name), docs, 50, 2, **params)
        for source in "abc":
            cut = sum(
                length for doc in docs if doc.source == source for _, length in result.spans.get(doc.id, [])
            )
            assert result.counters.get(f"source/{source}/substring_bytes_cut", 0) == cut
        return [doc for doc in lowest if doc.id not in result.spans]

    assert stay() == lowest[:1]
    assert stay(priorities={"b": 1}) == [doc for doc in lowest if doc.source == "b"][:1]
    assert stay(priorities={"a": -1, "b": -2, "c": -3})[0].source == "a"
    assert stay(own=["a", "b"]) == [doc for doc in lowest if doc.source == "c"]
    assert stay(own=["c"], priorities={"c": 9}) == [doc for doc in lowest if doc.source != "c"]
    assert stay(own=[]) == lowest


def test_documents_that_are_gone_keep_nothing(tmp_path: Path) -> None:
    """What document deduplication removed is not there to be the first."""
    shared = " ".join(words(random.Random(1), 60)) + " "
    docs = sorted(docs_of([f"{i} {shared}{i}" for i in range(3)]), key=lambda doc: doc.id)
    parts = partitions(Folder(tmp_path / "in"), docs, 2)
    removals = pa.table({"doc_id": pa.array([docs[0].id, docs[1].id], pa.binary(16)), "kept": [False, True]})
    file = publish_table(Folder(tmp_path), "removals.parquet", removals)
    kept = [
        Kept(0, parts[0], Folder(tmp_path) / "removals.parquet", file.xxh3), Kept(1, parts[1]),
    ]  # fmt: skip
    params = SubstringParams(min_tokens=50)
    files, counters = find(Folder(tmp_path / "out"), kept, params, {"web": 0}, None, Serial(), 16, "key")
    tables = [read_table(Folder(tmp_path / "out") / file.path) for file in files]
    assert [table["doc_id"].to_pylist() for table in tables] == [[], [docs[2].id]]
    assert tables[0].schema == SPANS
    assert counters["source/web/substring_bytes_cut"] == counters["substring_bytes_cut"] == len(shared)


@pytest.mark.parametrize("made", [[], [""], ["", " ", "one", "one", "x " * 7]])
def test_nothing_to_find(tmp_path: Path, made: list[str]) -> None:
    result = search(Folder(tmp_path), docs_of(made), 8, 2, priorities={"web": 0})
    assert result.spans == {} and set(result.counters.values()) == {0}


def test_a_text_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(substring_job, "LONGEST", 1000)
    with pytest.raises(WorkError, match="a text of 4 GiB or more"):
        search(Folder(tmp_path), docs_of(["word " * 300]), 50)


def test_real_texts(tmp_path: Path, data_dir: Path) -> None:
    """The World Factbook: countries described in the same words."""
    file = next((data_dir / "natural/encyclopedic_factbook").glob("*.jsonl.gz"))
    with gzip.open(file, "rt") as lines:
        docs = docs_of([" ".join(strings(json.loads(line)["data"])) for line in itertools.islice(lines, 25)])
    result = search(Folder(tmp_path), docs, 20, 3)
    assert result.spans == Corpus(docs, 20).spans()
    assert result.counters["substrings_cut"] > 50


def strings(value: Any) -> Iterator[str]:
    """Every string in nested JSON."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from strings(inner)
