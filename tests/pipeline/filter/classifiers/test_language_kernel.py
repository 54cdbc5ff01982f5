"""The kernel that answers which language: its arithmetic, and that an answer does not depend on the rest of the batch."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.classifiers import fasttext_model, language, language_kernel, predictor
from corpusmill.pipeline.filter.classifiers.language import Profile
from corpusmill.pipeline.filter.classifiers.model_words import Words, cleaned
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from corpusmill.pipeline.filter.text.view import text_buffers

Numbers = npt.NDArray[np.int64]


def shipped() -> tuple[Predictor, Profile]:
    """The shipped model and its profile."""
    file = fasttext_model.shipped(fasttext_model.LANGUAGE_MODEL)
    model = predictor.load(file.path, file.xxh3)
    assert isinstance(model, Predictor)
    return model, language.profile(str(file.profile), tuple(model.labels))


def words_of(texts: list[str]) -> Words:
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    return cleaned(data, offsets[:-1], offsets[1:])[0]


@st.composite
def choices(draw: st.DrawFn) -> tuple[npt.NDArray[np.float32], Numbers, npt.NDArray[np.uint64]]:
    labels = draw(st.integers(2, 6))
    logits = [draw(st.floats(-20, 20, width=32)) for _ in range(labels)]
    counts = [0, *(draw(st.integers(0, 30)) for _ in range(3))]
    bits = [draw(st.integers(1, 7)) << 1 for _ in range(labels)]
    return np.array(logits, np.float32), np.array(counts, np.int64), np.array(bits, np.uint64)


@given(choices(), st.floats(0.5, 3), st.floats(0, 0.9))
def test_the_choice_among_the_labels_of_the_scripts(
    drawn: tuple[npt.NDArray[np.float32], Numbers, npt.NDArray[np.uint64]], temperature: float, unknown: float
) -> None:
    logits, counts, bits = drawn
    nothing = len(bits) - 1
    temperatures = np.array([2 * temperature, temperature], np.float32)
    none = np.zeros(len(bits), np.float32)
    known = Profile(bits, np.array([10, 1 << 40]), temperatures, none, unknown, nothing)
    label, score = language_kernel.choose(logits, counts, known)
    letters = int(counts.sum())
    present = sum(
        1 << n for n in range(1, 4) if counts[n] and counts[n] >= language_kernel.SCRIPT_SHARE * letters
    )
    allowed = [n for n in range(nothing) if int(bits[n]) & present]
    if not allowed:
        assert (label, score) == (nothing, 0)
        return
    power = 1 / float(temperatures[0 if letters < 10 else 1])
    best = max(allowed, key=lambda n: logits[n])
    weights = {n: np.exp((float(logits[n]) - float(logits[best])) * power) for n in [*allowed, nothing]}
    own = 1 / sum(weights.values())
    assert score == pytest.approx(own, rel=1e-4)
    if abs(own - unknown) > 1e-4:
        is_unknown = logits[nothing] >= logits[best] or own < unknown
        assert logits[label] == logits[nothing if is_unknown else best]


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=6))
def test_the_probabilities_are_those_of_the_models_own_softmax(texts: list[str]) -> None:
    model, known = shipped()
    labels = len(model.labels)
    everything = np.full(labels, ~np.uint64(0), np.uint64)
    plain = known._replace(
        scripts=everything, temperatures=np.ones_like(known.temperatures), priors=np.zeros(labels, np.float32),
        unknown=0.0, label=-1,
    )  # fmt: skip
    words = words_of(texts)
    counts = np.zeros((len(texts), 49), np.int64)
    counts[:, 1] = 9
    label, score = np.empty(len(texts), np.int32), np.empty(len(texts), np.float32)
    kept = language_kernel.nothing_kept(model.arrays.numbers.dim)
    language_kernel.answers(model.arrays, plain, words, words.bounds, counts, kept, label, score)
    every = model.probabilities(words, words.bounds)
    for row in range(len(texts)):
        if label[row] < 0:
            assert not every[row].any()
        else:
            assert score[row] == pytest.approx(every[row].max(), rel=1e-3)
            assert every[row, label[row]] == pytest.approx(every[row].max(), rel=1e-3)


def test_answers_do_not_depend_on_what_else_was_read() -> None:
    rng = random.Random(2)
    syllables = ["ka", "lo", "mi", "ne", "ru", "sta", "ver", "ing", "que", "ão"]
    many = [
        " ".join("".join(rng.choices(syllables, k=rng.randint(4, 7))) for _ in range(180)) for _ in range(900)
    ]
    many[7] = "ka" * 40_000 + " lo" * 40  # words of which nothing is kept
    many[8] = "ka" * 39_999 + "ko" + " lo" * 40
    texts = pa.array(
        [text[:2000] if number not in (7, 8) else text for number, text in enumerate(many)], pa.large_string()
    )
    read = {word for text in many for word in text[: language.OWN_WINDOWS * language.LANGUAGE_CHARS].split()}
    assert len(read) > language_kernel._KEPT
    model, known = shipped()
    model.kept.clear()
    together = language.identify(texts, model, known)
    (kept,) = model.kept
    assert 0 < kept.used[0] < language_kernel._KEPT  # all were forgotten on the way
    backwards = language.identify(texts.take(pa.array(range(899, -1, -1))), model, known)
    assert (together.label == backwards.label[::-1]).all() and (together.score == backwards.score[::-1]).all()
    for n in [*range(0, 900, 30), 7, 8]:
        model.kept.clear()
        alone = language.identify(texts.slice(n, 1), model, known)
        assert (alone.label[0], alone.score[0]) == (together.label[n], together.score[n])


def test_a_row_in_use_is_added_up_before_another_word_takes_it() -> None:
    """The table is full, and the word that finds it so takes the row of a word just before it."""
    model, known = shipped()
    texts = ["the quick river", "the river flussabwärts rivière the"]
    model.kept.clear()
    alone = language.identify(pa.array(texts[1:], pa.large_string()), model, known)
    model.kept.clear()
    language.identify(pa.array(texts[:1], pa.large_string()), model, known)
    (kept,) = model.kept
    kept.used[0] = language_kernel._KEPT
    found = language.identify(pa.array(texts[1:], pa.large_string()), model, known)
    assert kept.used[0] < 9  # all were forgotten on the way
    assert (found.label[0], found.score[0]) == (alone.label[0], alone.score[0])
