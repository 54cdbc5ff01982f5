"""Fitting, calibration and the file: a regression against another solver, probabilities that hold, a round trip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.toxicity import training
from corpusmill.pipeline.filter.toxicity.features import KNOWN
from corpusmill.pipeline.filter.toxicity.model import NAMES, Weights, from_weights, load, to_bytes
from corpusmill.pipeline.filter.toxicity.scores import measured
from corpusmill.pipeline.filter.toxicity.sums import LABELS
from corpusmill.pipeline.filter.toxicity.tokens import hash_of
from corpusmill.pipeline.filter.toxicity.training import (
    LabelledTexts,
    Prepared,
    balanced,
    calibrated,
    fitted,
    known_tokens,
    prepared,
    rounded,
)

BAD, GOOD = (
    ["you idiot", "what an idiot you are", "idiot !"],
    ["you friend", "what a friend you are", "the river is wide"],
)


def labelled() -> LabelledTexts:
    labels = np.full((6, LABELS), np.nan, np.float32)
    labels[:, 0] = [1, 1, 1, 0, 0, 0]
    labels[:4, 1] = [1, 1, 1, 0]
    return LabelledTexts("six", BAD + GOOD, labels)


def weights() -> Weights:
    hashes, values = known_tokens([labelled()], {hash_of("you"): 7})
    own = prepared(labelled(), hashes, values)
    two = [fitted([own], label) for label in (0, 1)]
    return rounded([*two, *[two[0]] * (LABELS - 2)], [(2.0, 0.1)] * LABELS, hashes, values)


def test_the_fit_is_the_ridge_regression() -> None:
    generator = np.random.default_rng(3)
    matrix = sp.random(60, 40, 0.3, random_state=3, format="csr", dtype=np.float32)
    wide = sp.hstack([matrix, sp.csr_matrix((60, training.BUCKETS + 1 - 40), dtype=np.float32)]).tocsr()
    truth = generator.random(60) < 0.4
    labels = np.full((60, LABELS), np.nan, np.float32)
    labels[:, 0] = truth
    found = fitted([Prepared("a", labels, wide)], 0)[:40]
    dense, upper, sign = matrix.toarray().astype(np.float64), balanced(truth), np.where(truth, 1, -1)

    def loss(w: np.ndarray) -> float:
        return float(w @ w / 2 + upper @ np.logaddexp(0, -sign * (dense @ w)))

    best = minimize(loss, np.zeros(40), method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-12}).fun
    assert loss(found) <= best * 1.01


def test_each_class_of_a_set_weighs_the_same() -> None:
    truth = np.array([True] + [False] * 99)
    each = balanced(truth)
    assert each[truth].sum() == pytest.approx(each[~truth].sum())
    assert balanced(np.zeros(100, bool)).sum() == pytest.approx(each.sum() / 2)


def test_calibration_recovers_the_line() -> None:
    generator = np.random.default_rng(4)
    scores = generator.normal(size=40_000)
    truth = generator.random(40_000) < 1 / (1 + np.exp(-(1.7 * scores - 0.6)))
    slope, offset = calibrated(scores, truth, np.ones(40_000))
    assert slope == pytest.approx(1.7, abs=0.08) and offset == pytest.approx(-0.6, abs=0.05)


def test_a_label_learns_only_from_texts_that_have_it() -> None:
    model = from_weights(weights())
    text = pa.array(["you idiot", "the river"], pa.large_string())
    found = measured(text, model)
    assert found["toxicity.score"][0] > 0.6 > 0.5 > found["toxicity.score"][1]
    assert found["toxicity.insult"][1] > found["toxicity.score"][1]


def test_known_tokens_are_those_of_several_texts_and_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "TEXTS", 2)
    hashes, values = known_tokens([labelled()], {hash_of("you"): 7, hash_of("never"): 10})
    table = dict(zip(hashes.tolist(), values.tolist(), strict=True))
    assert (
        table[hash_of("you")] == KNOWN | 7
        and table[hash_of("never")] == 10
        and table[hash_of("idiot")] == KNOWN
    )
    assert hash_of("river") not in table and sorted(table) == hashes.tolist()


def test_the_file_holds_the_model(tmp_path: Path) -> None:
    made = weights()
    binary = to_bytes(made)
    assert to_bytes(weights()) == binary
    path = tmp_path / "mine.safetensors"
    path.write_bytes(binary)
    model = load(str(path), checksum(binary))
    assert model.labels == list(NAMES)
    text = pa.array(["you idiot", "a friend", ""], pa.large_string())
    for name, values in measured(text, from_weights(made)).items():
        assert (measured(text, model)[name] == values).all()
    with pytest.raises(WorkError, match="changed"):
        load(str(path), "0" * 32)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, to_bytes(weights()._replace(values=np.zeros(7, np.uint8)))]
)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.safetensors: (cannot be read|its arrays|no toxicity model)"):
        load(str(path), checksum(content))
