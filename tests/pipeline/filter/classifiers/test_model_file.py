"""Model files: what is understood, what is refused, and that no damage reaches a kernel."""

from __future__ import annotations

import mmap
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.classifiers import predictor
from corpusmill.pipeline.filter.classifiers.fasttext_model import MODELS
from corpusmill.pipeline.filter.classifiers.model_file import NotUnderstood, read_model, tree
from tests.pipeline.filter.classifiers.oracle import train, words_of

LINES = "".join(f"__label__{'ab'[i % 2]} w{i % 40} x{i % 7}\n" for i in range(400))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    base = {"epoch": 2, "minCount": 1, "bucket": 500, "dim": 4, "wordNgrams": 2}
    kinds = {
        "dense": ({**base, "loss": "softmax"}, None),
        "quantised": ({**base, "loss": "hs", "minn": 2, "maxn": 3}, {"cutoff": 300, "qnorm": True}),
    }
    return {
        name: path.read_bytes() for name, path in train(tmp_path_factory.mktemp("m"), kinds, LINES).items()
    }


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40))
def test_the_tree_has_every_label_once(counts: list[int]) -> None:
    left, right = tree(np.array(sorted(counts, reverse=True)))
    seen, open_nodes = [], [len(left) - 1]
    while open_nodes:
        node = open_nodes.pop()
        if left[node] < 0:
            seen.append(node)
        else:
            open_nodes += [int(left[node]), int(right[node])]
    assert sorted(seen) == list(range(len(counts)))


@pytest.mark.parametrize("kind", ["dense", "quantised"])
@given(data=st.data())
def test_damage_is_refused_or_harmless(
    models: dict[str, bytes], kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A changed or missing byte: `NotUnderstood`, or a model that still answers with numbers of the right shape."""
    binary = bytearray(models[kind])
    head = st.integers(0, 400) | st.integers(0, len(binary) - 1)
    for place in data.draw(st.lists(head, min_size=1, max_size=4)):
        binary[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        binary = binary[: data.draw(st.integers(1, len(binary)))]
    path = tmp_path_factory.mktemp("d") / "m.bin"
    path.write_bytes(binary)
    try:
        arrays, labels = read_model(path)
    except NotUnderstood:
        return
    model = predictor.Predictor(predictor._summed(arrays), labels)
    words = words_of(["w1 x2 w3", "", "zzz </s>"])
    assert model.probabilities(words, words.bounds).shape == (3, len(labels))


def test_word_vectors_and_newer_versions_are_not_understood(models: dict[str, bytes], tmp_path: Path) -> None:
    vectors = bytearray(models["dense"])
    struct.pack_into("<i", vectors, 8 + 7 * 4, 2)  # skip-gram
    newer = bytearray(models["dense"])
    struct.pack_into("<i", newer, 4, 13)
    for name, binary in (("vectors", vectors), ("newer", newer), ("empty", b""), ("short", b"abc")):
        (tmp_path / name).write_bytes(binary)
        with pytest.raises(NotUnderstood):
            read_model(tmp_path / name)
    with pytest.raises(UserError, match="not a fastText model"):
        predictor.load(str(tmp_path / "newer"), checksum(bytes(newer)))


def test_a_dictionary_larger_than_the_file_takes_no_memory(models: dict[str, bytes], tmp_path: Path) -> None:
    large = bytearray(models["dense"])
    struct.pack_into(
        "<iii", large, 8 + 12 * 4 + 8, 2**31 - 1, 2**31 - 3, 2
    )  # words and labels, words, labels
    (tmp_path / "large").write_bytes(large)
    tracemalloc.start()
    try:
        with pytest.raises(NotUnderstood, match="the dictionary is damaged"):
            read_model(tmp_path / "large")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_dense_matrix_stays_in_the_mapped_file(models: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(models["dense"])
    arrays, _ = read_model(tmp_path / "m")
    assert len(arrays.rows) > 500 and np.shares_memory(arrays.rows, arrays.blob)
    base: Any = arrays.blob
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def test_version_eleven_has_no_character_ngrams(models: dict[str, bytes], tmp_path: Path) -> None:
    old = bytearray(models["dense"])
    struct.pack_into("<i", old, 4, 11)
    struct.pack_into("<ii", old, 8 + 9 * 4, 2, 3)  # written by old versions, and meant nothing
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(models["dense"])
    words = words_of(["w1 x2 never"])
    found = [
        predictor.Predictor(*read_model(tmp_path / name)).probabilities(words, words.bounds)
        for name in ("old", "new")
    ]
    assert (found[0] == found[1]).all()


def test_the_library_stands_in_with_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(MODELS / "lid.176.ftz")
    xxh3 = checksum(Path(path).read_bytes())
    own = predictor.load(path, xxh3)

    def refuse(path: Path) -> None:
        raise NotUnderstood("a kind of tomorrow")

    monkeypatch.setattr(predictor, "read_model", refuse)
    library = predictor.load.__wrapped__(path, xxh3)
    assert library._arrays is None and library.labels == own.labels
    words = words_of(["Der Fluss entspringt\nin den Bergen", "the river", "", "__label__en"])
    for a, b in zip(own.best(words, words.bounds), library.best(words, words.bounds), strict=True):
        assert np.abs(a - b).max() < 1e-5
    german = [model.probability(words, words.bounds, "de") for model in (own, library)]
    assert np.abs(german[0] - german[1]).max() < 1e-5 and german[0][0] > 0.9
    every = [model.probabilities(words, words.bounds) for model in (own, library)]
    assert np.abs(every[0] - every[1]).max() < 1e-5
