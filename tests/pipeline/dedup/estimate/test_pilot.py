"""The look before the run: exact where it sees everything, right within its interval where it samples."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.estimate import pilot as module
from corpusmill.pipeline.dedup.estimate.corpus import Corpus
from corpusmill.pipeline.dedup.estimate.pilot import compare, index, pilot, work_of
from corpusmill.schemas.dedup import DedupParams
from tests.pipeline.dedup.helpers import docs_of, edited, partitions, words

PARAMS = DedupParams()


def look(folder: Path, texts: Sequence[str], count: int = 1) -> Corpus:
    return pilot(partitions(Folder(folder), docs_of(texts), count), PARAMS)


def jaccard(a: str, b: str) -> float:
    sets = [{tuple(t.split()[i : i + 5]) for i in range(len(t.split()) - 4)} for t in (a, b)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def with_copies(seed: int, bases: int, share: float, length: int = 60) -> tuple[list[str], int]:
    """Documents of random words, some with one edited copy (one to three words), shuffled; pairs at 0.8."""
    generator = random.Random(seed)
    texts, similar = [], 0
    for _ in range(bases):
        text = " ".join(words(generator, length))
        texts.append(text)
        if generator.random() < share:
            texts.append(edited(generator, text, generator.choice([1, 2, 3])))
            similar += jaccard(texts[-2], texts[-1]) >= PARAMS.similarity
    generator.shuffle(texts)
    return texts, similar


@given(st.lists(st.sets(st.integers(0, 30), min_size=1, max_size=12), min_size=2, max_size=12))
def test_compare_is_exact(sets: list[set[int]]) -> None:
    """Against all pairs, one by one."""
    spread = [sorted(value * 0x9E3779B97F4A7C15 % 2**64 for value in some) for some in sets]
    bounds = np.r_[0, np.cumsum([len(some) for some in spread])].astype(np.int64)
    found = index(bounds, np.array([value for some in spread for value in some], np.uint64))
    compared = compare(found, np.arange(len(sets), dtype=np.uint64), 1.0, 0.5)
    wanted = np.zeros(100)
    similar, meetings = 0, 0
    for a, b in itertools.combinations(sets, 2):
        meetings += 2 * len(a & b)
        if a & b:
            value = len(a & b) / len(a | b)
            wanted[min(99, int(value * 100))] += 1
            similar += value >= 0.5
    assert compared.pairs.tolist() == wanted.tolist()
    assert compared.similar == compared.seen == similar
    assert work_of(found) == meetings


def test_a_small_corpus_is_compared_as_a_whole(tmp_path: Path) -> None:
    texts, similar = with_copies(1, 60, 0.5)
    found = look(tmp_path, [*texts, *texts[:10], "", "..."], 3)
    assert found.similar is not None
    assert found.similar.value == found.similar.low == found.similar.high == similar > 5
    assert found.documents == len(texts) + 12 and found.partitions == 3
    assert found.distinct * found.documents == pytest.approx(len(texts) + 2)
    assert found.looked_at == len(texts)
    pairs = sum(jaccard(a, b) > 0 for a, b in itertools.combinations(texts, 2))
    assert sum(found.pairs) == pytest.approx(pairs)
    assert found.text_bytes == sum(len(text) for text in [*texts, *texts[:10], "..."])


def test_it_does_not_depend_on_the_cut(tmp_path: Path) -> None:
    texts, _ = with_copies(2, 100, 0.5)
    one, seven = look(tmp_path / "1", texts, 1), look(tmp_path / "7", texts, 7)
    differ = {"partitions", "stored_bytes"}
    assert one.model_dump(exclude=differ) == seven.model_dump(exclude=differ)


def test_a_sample_is_right_within_its_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 corpora at least 13 hold the true number in the 95 % interval, and the mean is right."""
    monkeypatch.setattr(module, "SAMPLE", 300)
    inside, ratios = 0, []
    for seed in range(16):
        texts, similar = with_copies(seed, 1_000, 0.3)
        found = look(tmp_path / str(seed), texts)
        assert found.similar is not None and 295 <= found.looked_at <= 300
        inside += found.similar.low <= similar <= found.similar.high
        ratios.append(found.similar.value / similar)
    assert inside >= 13
    assert np.mean(ratios) == pytest.approx(1, abs=0.12)


def test_a_few_partitions_stand_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the partitions holds a ninth of the pairs; the interval says how uncertain that is."""
    monkeypatch.setattr(module, "READ", 200_000)
    inside = 0
    for seed in range(10):
        texts, similar = with_copies(100 + seed, 1_000, 0.5)
        found = look(tmp_path / str(seed), texts, 12)
        assert found.similar is not None and found.looked_at < len(texts) / 2
        inside += found.similar.low <= similar <= found.similar.high
    assert inside >= 8


def test_no_pair_seen_is_no_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE", 100)
    found = look(tmp_path, with_copies(3, 400, 0.0)[0])
    assert found.similar is not None
    assert found.similar.value == found.similar.low == 0 and 5 < found.similar.high < 100


def test_pages_with_one_footer_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every document meets every other in the footer: fewer are compared, the number of pairs stays right."""
    monkeypatch.setattr(module, "WORK", 200_000)
    generator = random.Random(5)
    footer = " ".join(words(generator, 10))
    texts = [" ".join(words(generator, 50)) + " " + footer for _ in range(600)]
    found = look(tmp_path, texts)
    assert found.looked_at < 400
    assert sum(found.pairs) == pytest.approx(600 * 599 / 2, rel=0.25)
    assert sum(found.pairs[20:]) == 0


def test_nothing_to_look_at(tmp_path: Path) -> None:
    for corpus in (pilot([], PARAMS), look(tmp_path, ["", "-"])):
        assert sum(corpus.pairs) == 0 and corpus.looked_at == 0
