"""Held-out texts: by their words alone, near copies together, and what is a copy of what was learnt from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.classifiers.building import identity_report
from corpusmill.pipeline.filter.classifiers.labelled import Labelled, copies, held_out, runs_of
from tests.pipeline.filter.helpers import PROSE


@given(st.lists(st.text(max_size=80), max_size=6), st.integers(0, 2**31 - 1))
def test_the_side_of_a_text_is_its_own_whatever_is_beside_it(texts: list[str], seed: int) -> None:
    together = held_out(texts, 0.5, seed)
    assert together.tolist() == [held_out([text], 0.5, seed)[0] for text in texts]
    assert not held_out(texts, 0.0, seed).any() and held_out(texts, 1.0, seed).all()


@given(st.lists(st.sampled_from(["the", "river", "runs", "by", "our", "old", "town"]), max_size=30))
def test_runs_are_those_of_four_words(words: list[str]) -> None:
    runs, offsets = runs_of([" ".join(words), "x"])
    wanted = [tuple(words[i : i + 4]) for i in range(max(len(words) - 3, min(len(words), 1)))]
    assert offsets.tolist() == [0, len(wanted), len(wanted) + 1]
    assert len(set(runs[:-1].tolist())) == len(set(wanted))


def test_about_the_share_is_held_out_and_another_seed_holds_out_others() -> None:
    texts = [f"report {i} of day {i * 7} says {i % 13} things of {i % 31}" for i in range(5000)]
    for share in (0.1, 0.2, 0.5):
        assert held_out(texts, share, 0).mean() == pytest.approx(share, abs=0.02)
    assert 0.2 < (held_out(texts, 0.5, 0) == held_out(texts, 0.5, 1)).mean() < 0.8


def test_case_and_punctuation_do_not_part_copies_and_a_changed_word_seldom() -> None:
    words = PROSE.split()
    variants = [PROSE.upper(), PROSE.replace(" ", "\n"), f"«{PROSE}» …"]
    near = [" ".join([*words[:i], "other", *words[i + 1 :]]) for i in range(len(words))]
    same_side = []
    for seed in range(20):
        side = held_out([PROSE], 0.5, seed)[0]
        assert (held_out(variants, 0.5, seed) == side).all()
        same_side.append((held_out(near, 0.5, seed) == side).mean())
    assert np.mean(same_side) > 0.9


def test_copies_share_more_than_half_of_their_runs() -> None:
    words = [f"w{i}" for i in range(43)]  # 40 runs
    learnt, _ = runs_of([" ".join(words), "other things"])
    texts = [
        " ".join(words[:24]) + " " + " ".join(f"v{i}" for i in range(23)),  # 21 of 44 runs
        " ".join(words[:26]) + " " + " ".join(f"v{i}" for i in range(17)),  # 23 of 40
        " ".join(words[:23]) + " " + " ".join(f"v{i}" for i in range(20)),  # 20 of 40
        "W0, w1; W2? w3!",
        "w0 w1 w2",
        "",
        "Other things!",
    ]
    assert copies(texts, np.sort(learnt)).tolist() == [False, True, False, True, False, False, True]
    assert copies(texts, runs_of([])[0]).tolist() == [False] * 7


def test_identity_terms_are_counted_in_harmless_phrases_alone() -> None:
    texts = [
        "Amy is a kind gay",
        "Amy is a vile gay",
        "Tim is a gay, deaf actor",
        "Tim is middle-aged",
        "nothing",
    ]
    data = Labelled("phrases", texts, [False, True, False, False, False])
    report = identity_report(data, np.array([0.9, 0.9, 0.2, 0.5, 0.0], np.float32), 0.5)
    assert (report.phrases, report.above, report.rate) == (4, 1, 0.25)
    assert report.terms == [("gay", 2, 1), ("deaf", 1, 0), ("middle-aged", 1, 0)]
    nothing = identity_report(Labelled("none", [], []), np.zeros(0, np.float32), 0.5)
    assert nothing.rate == 0 and nothing.terms == []
