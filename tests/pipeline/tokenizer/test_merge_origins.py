"""Where merges come from in a run (boilerplate, tags), and the figures by language and of other tokenizers."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import encode, plain
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.engine.document_hash import read_validation_groups, split_of
from corpusmill.pipeline.tokenizer.merge_origins import (
    MIN_LINE,
    REPEATED,
    TAG,
    Origin,
    _names,
    count_tokens,
    describe,
    line_hashes,
    mark,
)
from corpusmill.pipeline.tokenizer.train import train
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.pipeline.corpus import documents, words
from tests.pipeline.tokenizer.test_tokenizer import build

FOOT = "\nQuuxzap Vlurbnitz Zorgwumph\n"


def corpus() -> pa.Table:
    pages = [
        words(60, i) + (FOOT if i % 2 else "\n") + f"write to <EMAIL> or <PHONE>, {i}\n" for i in range(200)
    ]
    docs = pa.concat_tables(
        [documents(pages, "web"), documents([words(50, 900 + i) for i in range(60)], "code")]
    )
    names = [["en", "fr", None][i % 3] for i in range(len(docs))]
    return docs.set_column(
        docs.column_names.index("language"), docs.schema.field("language"), [pa.array(names, pa.string())]
    )


@pytest.fixture(scope="module")
def stats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("run")
    other = train(corpus()["text"], TokenizerParams(vocab_size=300, pre_tokenizer="gpt2"))
    (place / "other.json").write_bytes(other)
    made: dict[str, Any] = json.loads(
        build(place, corpus(), vocab_size=600, compare=[str(place / "other.json")])["stats.json"]
    )
    return {**made, "path": str(place / "other.json")}


def test_merges_of_repeated_lines_and_tags_are_named(stats: dict[str, Any]) -> None:
    origins = stats["origins"]
    assert origins["repeated_lines"] == 1 and origins["docs"] == stats["trained_on"]["docs"]
    assert origins["bytes"] == stats["trained_on"]["bytes"]
    feet = {row["token"] for row in origins["boilerplate"]["most_frequent"]}
    assert {" Vlurbnitz", " Zorgwumph"} <= feet and "EMAIL" not in feet
    tags = {row["token"]: row for row in origins["tags"]["most_frequent"]}
    assert set(tags) >= {"EMAIL", "PHONE"} and not any("rite" in token for token in tags)
    assert tags["EMAIL"]["count"] == tags["EMAIL"]["inside"] > 100
    assert origins["boilerplate"]["merges"] >= len(feet) and origins["tags"]["merges"] >= len(tags)
    assert 0 < origins["tokens_in_repeated_lines"] < origins["tokens_in_tags"] < origins["tokens"]


def test_languages_sum_up_what_sources_do(stats: dict[str, Any]) -> None:
    assert set(stats["languages"]) == {"en", "fr"}
    assert (
        0
        < sum(row["docs"] for row in stats["languages"].values())
        < sum(row["docs"] for row in stats["sources"].values())
    )
    for row in [*stats["sources"].values(), *stats["languages"].values()]:
        assert row["chars_per_token"] == round(row["chars"] / row["tokens"], 4)
        other = row["compare"][stats["path"]]
        assert other["bytes_per_token"] == round(row["bytes"] / other["tokens"], 4)
        assert other["tokens"] > row["tokens"]  # of half the vocabulary


def test_partitions_and_order_change_no_figure(stats: dict[str, Any], tmp_path: Path) -> None:
    again = json.loads(
        build(tmp_path, corpus(), 5, shuffle=4, vocab_size=600, compare=[stats["path"]])["stats.json"]
    )
    assert {**again, "path": stats["path"]} == stats


def test_what_cannot_be_compared_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tokenizer\.compare: .*absent\.json: no such file"):
        build(tmp_path / "1", corpus(), compare=[str(tmp_path / "absent.json")])
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.compare: .*bad\.json: not a tokenizer\.json"):
        build(tmp_path / "2", corpus(), compare=[str(tmp_path / "bad.json")])


def test_boilerplate_is_a_line_of_three_documents(tmp_path: Path) -> None:
    lines = {f"Zorg line number {i:02}, in {2 + i % 3} documents": 2 + i % 3 for i in range(12)}
    pages = ["\n".join([words(20, i), *[f"ten times on page {i}, no other"] * 10]) for i in range(8)]
    for line, times in lines.items():
        pages += [f"{words(20, len(pages) + i)}\n  {line}\t\n" for i in range(times)]
    docs = documents(pages, "web")
    stats = json.loads(build(tmp_path, docs)["stats.json"])
    train_side = ~split_of(docs, read_validation_groups(Folder(tmp_path / "split")))
    read = docs.filter(pa.array(train_side))["text"].to_pylist()
    holders = {line: sum(line in text for text in read) for line in lines}
    assert {2, 3} <= set(holders.values())
    assert stats["origins"]["repeated_lines"] == sum(count >= 3 for count in holders.values())


def test_a_part_of_a_large_sample_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.pipeline.tokenizer.merge_origins.SAMPLE_BYTES", 20_000)
    stats = json.loads(build(tmp_path / "1", corpus())["stats.json"])
    origins, trained_on = stats["origins"], stats["trained_on"]
    assert trained_on["bytes"] > 60_000 and 10_000 < origins["bytes"] < 30_000
    assert 0 < origins["docs"] < trained_on["docs"] / 2
    again = json.loads(build(tmp_path / "2", corpus(), 4, shuffle=2)["stats.json"])
    assert again["origins"] == origins


def test_a_merge_is_named_for_more_than_half_of_four_occurrences() -> None:
    every = np.array([9, 4, 4, 3, 8, 8, 9] + [4] * 30)
    lines = np.array([9, 2, 3, 3, 8, 5, 8] + [4] * 30)
    merged = np.array([False] + [True] * 36)  # the first is a byte
    texts = [str(i) for i in range(37)]
    found = describe(Origin(np.stack([every, lines, 0 * lines]), 5, 99, 2), merged, texts)
    assert found["boilerplate"]["merges"] == 34 and found["tags"] == {"merges": 0, "most_frequent": []}
    shown = found["boilerplate"]["most_frequent"]
    assert [row["token"] for row in shown] == ["4", "6", "5", *texts[7:24]]
    assert shown[1] == {"token": "6", "count": 9, "inside": 8}
    assert (found["tokens_in_repeated_lines"], found["tokens"]) == (lines.sum(), every.sum())


EOS = "<|endoftext|>"
BLANK = " \t\n\v\f\r"
TEXTS = st.lists(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from(
                ["a line that is repeated", "<EMAIL>", "<PHONE", "\n", "\r\n", "  ", "<IP>>", "日本語" * 6]
            ),
        ),
        max_size=8,
    ).map("".join),
    max_size=5,
)


@pytest.fixture(scope="module")
def bpe() -> Bpe:
    texts = [words(50, seed) for seed in range(30)] + ["mail <EMAIL> now\n"] * 9
    data = train(pa.chunked_array([pa.array(texts, pa.large_string())]), TokenizerParams(vocab_size=400))
    return load_bpe(data, EOS, "test")


def array(texts: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(["left out", *texts], pa.large_string())]).slice(1)


def long_lines(text: str) -> list[bytes]:
    stripped = [line.strip(BLANK.encode()) for line in text.encode().split(b"\n")]
    return [line for line in stripped if len(line) >= MIN_LINE]


@settings(max_examples=150, deadline=None)
@given(TEXTS)
@example(["x" * 15 + "\n" + "y" * 16 + "\n\n  " + "y" * 16 + "  "])
def test_lines_have_equal_hashes_where_they_are_equal(bpe: Bpe, texts: list[str]) -> None:
    for view in (view.alone() for view in plain(bpe, array(texts))):
        hashes = np.zeros(len(view.data) // MIN_LINE + 1, np.uint64)
        owners = np.zeros(len(hashes), np.int32)
        count = line_hashes(view.data, view.bounds, hashes, owners)
        lines = [(line, k) for k, text in enumerate(texts) for line in long_lines(text)]
        assert owners[:count].tolist() == [k for _, k in lines]
        of = dict(zip([line for line, _ in lines], hashes[:count].tolist(), strict=True))
        assert [of[line] for line, _ in lines] == hashes[:count].tolist()
        assert len(set(of.values())) == len(of) and 0 not in of.values()


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_tokens_are_counted_where_their_middle_lies(bpe: Bpe, texts: list[str]) -> None:
    repeated = {line for line, n in Counter(x for t in texts for x in set(long_lines(t))).items() if n >= 2}
    names, ends = _names()
    known = [b"<" + names[a:b].tobytes() + b">" for a, b in pairwise(ends)]
    for view in (view.alone() for view in plain(bpe, array(texts))):
        hashes = np.zeros(len(view.data) // MIN_LINE + 1, np.uint64)
        owners = np.zeros(len(hashes), np.int32)
        count = line_hashes(view.data, view.bounds, hashes, owners)
        every = [line for text in texts for line in long_lines(text)]
        wanted = np.array(
            sorted({int(h) for h, line in zip(hashes[:count], every, strict=True) if line in repeated}),
            np.uint64,
        )
        marks = np.zeros(len(view.data), np.uint8)
        mark(view.data, view.bounds, wanted, names, ends, marks)
        expected = bytearray(len(view.data))
        base = 0
        for text in texts:
            data, at = text.encode(), 0
            for line in data.split(b"\n"):
                bare = line.strip(BLANK.encode())
                if bare in repeated:
                    start = base + at + line.index(bare)
                    for i in range(start, start + len(bare)):
                        expected[i] |= REPEATED
                at += len(line) + 1
            for i in range(len(data)):
                for tag in known:
                    if data.startswith(tag, i):
                        for j in range(i, i + len(tag)):
                            expected[base + j] |= TAG
            base += len(data)
        assert marks.tobytes() == bytes(expected)
        ids, starts = encode(bpe, pa.chunked_array([view.texts]))
        counts = np.zeros((3, bpe.vocab_size), np.int64)
        table = bpe.pieces
        count_tokens(view.bounds, ids, starts, table.bounds, marks, counts)
        at, expect = 0, np.zeros_like(counts)
        for token in ids.tolist():
            size = int(table.bounds[token + 1] - table.bounds[token])
            flags = expected[at + size // 2]
            expect[:, token] += [1, bool(flags & REPEATED), bool(flags & TAG)]
            at += size
        assert counts.tolist() == expect.tolist()
