"""Which occurrence of a repeated line stays: against the reference, and by example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Kept
from corpusmill.pipeline.dedup.lines import line_steps
from corpusmill.pipeline.dedup.lines.line_deduplication import find
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.schemas.dedup import LineParams
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, docs_of, partitions
from tests.pipeline.dedup.lines import reference
from tests.pipeline.dedup.lines.corpus import Found, after, run

LINE = LineParams(min_words=1)
PARAGRAPH = LineParams(unit="paragraph", min_words=1)
C4 = LineParams(unit="sentences", min_words=1)
SOURCES = ["books", "code", "web"]
PIECES = [
    "a b. ", "A, b? ", "c1. ", "c 2", "\n", "\n", "\n\n", " ", "é ", "漢字。", "漢。", "x", "\r\n", "\t", "ß! ",
]  # fmt: skip
PARTS = st.sampled_from(PIECES)
TEXTS = st.lists(st.lists(PARTS, max_size=14).map("".join), max_size=6)
CORPORA = st.lists(st.tuples(st.lists(PARTS, max_size=14).map("".join), st.sampled_from(SOURCES)), max_size=6)


def docs_with(pairs: list[tuple[str, str]]) -> list[Doc]:
    return [Doc(text, f"f{i}", source) for i, (text, source) in enumerate(pairs)]


def left(found: Found, docs: list[Doc]) -> list[str | None]:
    return [found.texts.get(doc.id) for doc in docs]


@given(
    CORPORA,
    st.builds(
        LineParams,
        unit=st.sampled_from(["line", "paragraph", "sentences"]),
        sentences=st.integers(1, 3),
        min_words=st.integers(1, 3),
        min_left=st.just(0),
    ),
    st.sampled_from([1, 2, 7]),
    st.dictionaries(st.sampled_from(SOURCES), st.integers(-2, 2)),
    st.none() | st.lists(st.sampled_from(SOURCES), max_size=2),
)
@settings(max_examples=80)
def test_any_corpus_against_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[tuple[str, str]],
    params: LineParams,
    count: int,
    priority: dict[str, int],
    only: list[str] | None,
) -> None:
    docs = docs_with(pairs)
    root = Folder(tmp_path_factory.mktemp("run"))
    found = run(root, docs, params, count, priority=priority, only=only)
    assert found.texts == reference.deduplicated(docs, params, priority, only)
    first, numbers = reference.repeats(docs, {d.id: d.text for d in docs}, params, priority, only)
    assert found.counters["distinct_repeated_lines"] == len(numbers)
    assert found.counters["most_repeated_line"] == max(numbers, default=0)
    if params.unit != "sentences":
        assert found.counters["lines_cut"] == sum(len(spans) for spans in first.values())
        assert found.counters["documents_with_cut_lines"] == len([spans for spans in first.values() if spans])
    again = run(root / "again", after(docs, found), params, count, priority=priority, only=only)
    assert again.counters["lines_cut"] == 0 and len(again.spans) == 0, "nothing is left to cut"
    assert again.texts == found.texts


@given(TEXTS, st.sampled_from([LINE, PARAGRAPH, C4]))
@settings(max_examples=50)
def test_no_words_are_lost(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], params: LineParams
) -> None:
    """Of every line, paragraph or sentence of the corpus one occurrence stays, however windows overlap."""
    docs = docs_of(texts)
    found = run(Folder(tmp_path_factory.mktemp("run")), docs, params)
    single = params.model_copy(update={"sentences": 1})

    def units(all_texts: list[str]) -> set[object]:
        return {key for text in all_texts for key, _ in reference.units(text, single)}

    assert units(list(found.texts.values())) == units(texts)


def test_lines_as_ccnet(tmp_path: Path) -> None:
    """Headers and footers go from all pages but one, whatever the case, the date or the page number."""
    pages = [
        f"Home | News | About us\nPage {i} of 12\nThe story number {word} is told here.\n© 20{i + 10} The Site, Ltd."
        for i, word in enumerate(["one", "two", "three"])
    ]
    docs = docs_of([*pages, "HOME, NEWS: ABOUT US\nok\nok"])
    found = run(Folder(tmp_path), docs, LineParams())
    stays = min(docs, key=lambda doc: doc.id)
    for doc in docs:
        expected = [line for line in doc.text.split("\n") if doc is stays or "story" in line or line == "ok"]
        lines = found.texts.get(doc.id, "").split("\n")
        assert [line for line in expected if line not in lines] == []
    joined = "\n".join(found.texts.values()).lower().replace(",", " |").replace(":", " |")
    assert joined.count("home | news | about us") == 1 and joined.count("ltd.") == 1
    assert joined.count("ok") == 2, "units of fewer words than min_words stay"
    assert found.counters["most_repeated_line"] == 4 and found.counters["distinct_repeated_lines"] == 3


def test_three_sentences_as_c4(tmp_path: Path) -> None:
    """Two sentences in common are none; of three all but one occurrence goes."""
    shared = "Cookies help us. They are small files. You may refuse them."
    docs = docs_of(
        [f"First text. {shared} It goes on.", f"Second text. {shared} It ends.", "They are small files. You may refuse them. Well."]
    )  # fmt: skip
    found = run(Folder(tmp_path), docs, LineParams(unit="sentences"))
    cut = max(docs[:2], key=lambda doc: doc.id)
    assert found.texts[cut.id] == cut.text.replace(f"{shared} ", "")
    assert [doc.id for doc in docs if found.texts[doc.id] != doc.text] == [cut.id]
    assert found.counters["lines_cut"] == 1 and found.counters["line_bytes_cut"] == len(shared)


def test_paragraphs(tmp_path: Path) -> None:
    docs = docs_of(["one two\nthree\n\nshared: a b\nc\n\nfour five six", "SHARED a b c\n\nother words here"])
    found = run(Folder(tmp_path), docs, LineParams(unit="paragraph"))
    if docs[0].id < docs[1].id:
        assert left(found, docs) == [docs[0].text, "other words here"]
    else:
        assert left(found, docs) == ["one two\nthree\n\nfour five six", docs[1].text]


def test_windows_that_cutting_makes_are_cut_too(tmp_path: Path) -> None:
    """`a b c` goes from the second text, which then is the third: another pass."""
    docs = [Doc(text, f"f{i}", source) for i, (text, source) in enumerate(
        [("A. B. C.", "books"), ("X. A. B. C. Y. Z.", "web"), ("X. Y. Z.", "code")]
    )]  # fmt: skip
    priority = {"books": 2, "code": 1}
    found = run(Folder(tmp_path), docs, C4, 3, priority=priority)
    assert left(found, docs) == ["A. B. C.", None, "X. Y. Z."]
    assert found.counters["lines_cut"] == 2 and found.spans["length"].to_pylist() == [17]
    turns = {
        entry.path.split("/")[2] for entry in (found.folder / "scratch").list() if "/units/" in entry.path
    }
    assert len(turns) == 3, "the last of them finds nothing"
    again = [
        e.path for e in (found.folder / "scratch").list() if "/units/01/" in e.path and ".units" in e.path
    ]
    assert len(again) == 1, "texts that did not change are not read again"


def test_priority_and_protected_sources(tmp_path: Path) -> None:
    docs = docs_with([("same line here\nsame line here\nown", s) for s in ("web", "books", "code")])
    web, books, code = docs

    def texts(name: str, **options: Any) -> list[str | None]:
        return left(run(Folder(tmp_path / name), docs, LineParams(), 2, **options), docs)

    once, none = "same line here\nown", "own"
    for stays, order in (
        (web, {"web": 1}),
        (books, {"books": 3, "web": 2}),
        (code, {"books": -1, "web": -7}),
    ):
        found = texts(stays.source, priority=order)
        assert found == [once if doc is stays else none for doc in docs]
    untouched = books.text
    assert texts("a", only=["web", "code"], priority={"web": 9}) == [none, untouched, none]
    assert texts("b", only=["code"]) == [web.text, books.text, none]
    assert texts("c", only=[]) == [doc.text for doc in docs]
    assert sorted(texts("d", only=["web", "books", "code", "no such source"])) == [none, none, once]  # type: ignore[type-var]


def test_min_left_removes_what_nothing_is_left_of(tmp_path: Path) -> None:
    docs = docs_with([("a line of words\nand more of it", "books"), ("a line of words\nx y", "web"), ("A line of words", "web")])  # fmt: skip
    priority = {"books": 1}
    found = run(Folder(tmp_path / "1"), docs, LineParams(), priority=priority)
    assert left(found, docs) == [docs[0].text, "x y", None] and found.removed == {docs[2].id}
    found = run(Folder(tmp_path / "2"), docs, LineParams(min_left=3), priority=priority)
    assert found.removed == {docs[1].id, docs[2].id}
    found = run(Folder(tmp_path / "3"), docs, LineParams(min_left=0), priority=priority)
    assert left(found, docs) == [docs[0].text, "x y", ""]


def test_documents_that_deduplication_removed_play_no_part(tmp_path: Path) -> None:
    docs = docs_of(["a b c\nx y z", "a b c\nd e f"])
    folder = Folder(tmp_path)
    parts = partitions(folder / "in", docs)
    rows = pa.table({"doc_id": pa.array([docs[0].id], pa.binary(16)), "kept": [False]})
    file = publish_table(folder, "removals/00000.parquet", rows)
    kept = [Kept(0, parts[0], folder / "removals/00000.parquet", file.xxh3)]
    [file], counters = find(folder, kept, LineParams(), {}, None, Serial(), 64, "key")
    assert counters["lines_cut"] == 0 and len(read_table(folder / file.path)) == 0


def test_no_documents(tmp_path: Path) -> None:
    nothing = {
        "lines_cut": 0, "line_bytes_cut": 0, "documents_with_cut_lines": 0, "distinct_repeated_lines": 0,
        "most_repeated_line": 0,
    }  # fmt: skip
    assert find(Folder(tmp_path), [], LINE, {}, None, Serial(), 64, "key") == ([], nothing)
    for params in (LINE, PARAGRAPH, C4):
        assert run(Folder(tmp_path / params.unit), [], params, 1).counters == nothing
        assert (
            run(Folder(tmp_path / "e" / params.unit), docs_of(["", "\n\n", "..."]), params, 2).counters
            == nothing
        )


def test_a_line_in_every_place_sends_one_record_a_partition(tmp_path: Path) -> None:
    docs = docs_of(["the same line\n" * 50] * 40)
    found = run(Folder(tmp_path), docs, LineParams(), 4)
    sizes = [e.size for e in (found.folder / "scratch/lines/units/00").list() if e.path.endswith(".units")]
    assert sizes == [line_steps.UNIT.itemsize] * 4
    assert found.counters["most_repeated_line"] == 2000 and found.counters["lines_cut"] == 1999
    assert list(found.texts.values()) == ["the same line\n"]
