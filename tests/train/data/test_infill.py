"""Rows with gaps: each rearranged document can be put together again, the share is that of the config, labels are as they should be."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.schemas.masking import InfillConfig
from corpusmill.train.data import StreamingTokens
from corpusmill.train.data.infill import SHORTEST, Infill
from corpusmill.train.data.pack import IGNORED, Rows
from tests.train.conftest import write_shards

EOS, PRE, SUF, MID, LENGTH = 0, 501, 502, 503, 64
SPECIALS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def rows_of(sizes: list[list[int]], last_ends: bool = True) -> Rows:
    """Rows of documents of these sizes, each with an end of text but perhaps the last; tokens count up, so that order shows."""
    labels, begins = [], []
    for row in sizes:
        parts = [np.arange(1, size + 1) + 10 * n for n, size in enumerate(row)]
        for n, part in enumerate(parts):
            if n + 1 < len(parts) or last_ends:
                part[-1] = EOS
        labels.append(np.concatenate(parts))
        begins.append(np.cumsum(row)[:-1])
    text = np.array(labels, dtype=np.int64)
    tokens = np.concatenate((np.full((len(text), 1), EOS), text[:, :-1]), axis=1)
    return Rows(tokens, text, lambda row: begins[row])


def documents(made: Rows, row: int) -> list[tuple[list[int], list[int]]]:
    """(tokens read, labels) of each document of a row."""
    edges = [0, *made.begins(row).tolist(), made.labels.shape[1]]
    return [(made.tokens[row, a:b].tolist(), made.labels[row, a:b].tolist()) for a, b in pairwise(edges)]


def original(read: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Prefix, middle and suffix of what a rearranged document reads."""
    suffix, middle = read.index(SUF), read.index(MID)
    between = read[suffix + 1 : middle]
    if suffix == 1:  # SPM: prefix and middle are one behind the suffix
        return [], read[middle + 1 :], between
    return read[1:suffix], read[middle + 1 :], between


def cut(draw: Any) -> list[int]:
    sizes, left = [], LENGTH
    while left:
        sizes.append(draw(st.integers(1, left)))
        left -= sizes[-1]
    return sizes


@st.composite
def layouts(draw: Any) -> tuple[list[list[int]], bool, int]:
    rows = draw(st.integers(1, 3))
    return [cut(draw) for _ in range(rows)], draw(st.booleans()), draw(st.integers(0, 10**6))


@given(layouts())
def test_every_document_can_be_put_together_again(case: tuple[list[list[int]], bool, int]) -> None:
    sizes, last_ends, number = case
    plain = rows_of(sizes, last_ends)
    infill = Infill(InfillConfig(rate=1.0), (PRE, SUF, MID), EOS, seed=4)
    count = len(sizes)
    made = infill(plain, np.full(count, number), np.arange(count))
    assert made.tokens.shape == made.labels.shape == plain.labels.shape
    for row in range(count):
        for (read, labels), (before, text) in zip(documents(made, row), documents(plain, row), strict=True):
            assert read[0] == before[0]  # what stands before a document
            ends = text[-1] == EOS
            if len(text) - ends < SHORTEST:
                assert (read, labels) == (before, text)
                continue
            known = [*read[1:], labels[-1] if labels[-1] != IGNORED else MID]
            assert all(b in (a, IGNORED) for a, b in zip(known, labels, strict=True))
            # Special tokens, and they alone, are no labels.
            assert [a for a, b in zip(known, labels, strict=True) if b == IGNORED] in (
                [PRE, SUF, MID],
                [PRE, SUF, MID][: sum(b == IGNORED for b in labels)],
            )
            assert known[0] == PRE and known.count(SUF) == known.count(MID) == 1
            body = known[:-1] if ends else known
            assert not ends or known[-1] == EOS
            prefix, middle, suffix = original(body)
            assert prefix + middle + suffix == text[: len(body) - 3]


def test_as_many_documents_are_rearranged_as_the_config_says_and_in_both_orders() -> None:
    plain = rows_of([[16, 16, 32]] * 4000)
    config = InfillConfig(rate=0.4, suffix_first=0.25)
    made = Infill(config, (PRE, SUF, MID), EOS, seed=1)(plain, np.arange(4000), np.zeros(4000, np.int64))
    starts = np.array([0, 16, 32])
    taken = made.tokens[:, starts + 1] == PRE
    assert taken.mean() == pytest.approx(0.4, abs=0.02)
    # A prefix is empty where either of two cuts is at the first of m + 1 places.
    empty = np.mean([1 - (m / (m + 1)) ** 2 for m in (12, 12, 28)])
    first = (made.tokens[:, starts + 2] == SUF)[taken].mean()
    assert first == pytest.approx(0.25 + 0.75 * empty, abs=0.02)
    # Gaps lie anywhere: of the 12 tokens that stay of the first document each is the last one before a gap now and then.
    where = [documents(made, row)[0][0].index(SUF) for row in range(1000) if taken[row, 0]]
    assert set(where) >= set(range(2, 14))


def test_of_middles_the_gap_and_its_end_alone_are_labels() -> None:
    plain = rows_of([[20, 44], [4, 60]])
    infills = [
        Infill(InfillConfig(rate=rate), (PRE, SUF, MID), EOS, seed) for rate, seed in ((0.1, 1), (1.0, 2))
    ]
    numbers = np.arange(2), np.zeros(2, np.int64)
    made, again = (one.middles(plain, *numbers) for one in infills)
    assert (made.tokens == again.tokens).all() and (made.labels == again.labels).all()
    for row in range(2):
        for (read, labels), (_, text) in zip(documents(made, row), documents(plain, row), strict=True):
            if len(text) - 1 < SHORTEST:
                assert set(labels) == {IGNORED}
                continue
            scored = [label for label in labels if label != IGNORED]
            assert scored[-1] == EOS and labels[-len(scored) :] == scored
            before = read[: len(read) - len(scored) + 1]
            suffix = before[before.index(SUF) + 1 : before.index(MID)]
            prefix = (
                before[before.index(MID) + 1 :] if before.index(SUF) == 2 else before[2 : before.index(SUF)]
            )
            assert prefix + scored[:-1] + suffix == text[:-4]


def test_a_stream_of_it_is_the_same_in_any_layout_and_after_a_restart(tmp_path_factory: Any) -> None:
    shards = write_shards(Folder(tmp_path_factory.mktemp("infill") / "shards"), specials=SPECIALS)
    options: dict[str, Any] = {
        "sequence_length": 48, "global_batch": 8, "seed": 3, "infill": {"rate": 0.7}, "packing": "best_fit",
        "sequence_ramp": {2: 24}, "batch_ramp": {2: 16},
    }  # fmt: skip
    with StreamingTokens(shards.url, **options) as one:
        alone = [dict(next(one)) for _ in range(5)]
    assert any((batch["tokens"] == 96).any() for batch in alone)
    ranks = [StreamingTokens(shards.url, dp_rank=rank, dp_world=2, **options) for rank in range(2)]
    for whole in alone:
        parts = [next(rank) for rank in ranks]
        for name in ("tokens", "labels", "documents", "n"):
            assert torch.equal(torch.cat([part[name] for part in parts]), whole[name]), name
    state = ranks[0].state_dict()
    for rank in ranks:
        rank.close()
    with StreamingTokens(shards.url, **options) as first, StreamingTokens(shards.url, **options) as again:
        for _ in range(5):
            next(first)
        again.load_state_dict(state)
        a, b = next(first), next(again)
        assert all(torch.equal(a[name], b[name]) for name in a)
