"""Fitting the model: logistic regressions over labelled sets by dual coordinate descent, and their calibration.

Sets differ in size and in the share of what is toxic: each set's classes get the same weight in all, and a set of n texts a
weight of n^(1 - DAMPING) (a set ten times as large counts two and a half times as much). A text without a label is left out of
that label's fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.filter.text.view import Array, text_buffers
from corpusmill.pipeline.filter.toxicity.features import KNOWN, extracted, lexicon, looked_up
from corpusmill.pipeline.filter.toxicity.model import Weights
from corpusmill.pipeline.filter.toxicity.tokens import Tokens, tokens

BUCKETS: Final = 1 << 18
DAMPING: Final = 0.6
STRENGTH: Final = 90.0  # what a set's weight is multiplied by: the inverse of the ridge penalty
EPOCHS: Final = 8
TEXTS: Final = 10  # texts with a token that make it known
_BIAS: Final = 0.3  # the value of the constant feature
_QUANTILE: Final = 32767


class LabelledTexts(NamedTuple):
    """Texts of one set with their labels: 1, 0, or nan where that is not known."""

    name: str
    texts: Sequence[str]
    labels: Array  # float32[texts, LABELS]


class Prepared(NamedTuple):
    """A set's features, ready to fit on."""

    name: str
    labels: Array
    matrix: sp.csr_matrix  # float32[texts, BUCKETS + 1]; the last column is constant


def tokens_of(texts: Sequence[str]) -> Tokens:
    """The tokens of whole texts."""
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    return tokens(data, offsets[:-1], offsets[1:])


def prepared(one: LabelledTexts, hashes: Array, values: Array) -> Prepared:
    """The features of a set by the classes of tokens."""
    found = tokens_of(one.texts)
    own = extracted(found, found.bounds, looked_up(found, lexicon(hashes, values)), BUCKETS)
    rows = len(one.texts)
    matrix = sp.csr_matrix((own.values, own.features, own.offsets), shape=(rows, BUCKETS))
    matrix.sum_duplicates()
    constant = sp.csr_matrix(np.full((rows, 1), _BIAS, np.float32))
    return Prepared(one.name, one.labels, sp.hstack([matrix, constant]).tocsr())


def balanced(truth: Array) -> Array:
    """float64[texts]: the weights of a set's texts in a fit."""
    share = float(truth.mean())
    each = np.where(truth, 0.5 / max(share, 1e-9), 0.5 / max(1 - share, 1e-9))
    if share in (0.0, 1.0):
        each = np.full(len(truth), 0.5)
    return np.asarray(each * STRENGTH * len(truth) ** -DAMPING)


def fitted(sets: Sequence[Prepared], label: int, seed: int = 1) -> Array:
    """float64[BUCKETS + 1]: the regression of one label over the sets that have it."""
    rows, truths, weights = [], [], []
    for one in sets:
        have = np.flatnonzero(~np.isnan(one.labels[:, label]))
        if len(have):
            truth = one.labels[have, label] > 0.5
            rows.append(one.matrix[have])
            truths.append(truth)
            weights.append(balanced(truth))
    matrix = sp.vstack(rows).tocsr()
    signs = np.where(np.concatenate(truths), 1.0, -1.0)
    order = np.random.default_rng(seed)
    orders = np.stack([order.permutation(len(signs)) for _ in range(EPOCHS)])
    found = np.zeros(BUCKETS + 1)
    _descend(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float64), signs,
        np.concatenate(weights), orders, found,
    )  # fmt: skip
    return found


def calibrated(scores: Array, truth: Array, weights: Array) -> tuple[float, float]:
    """(slope, offset) of Platt's logistic over scores, by Newton's method; the targets are moved off 0 and 1 as he does."""
    positives, negatives = weights[truth].sum(), weights[~truth].sum()
    target = np.where(truth, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    slope, offset = 1.0, 0.0
    for _ in range(50):
        p = 1 / (1 + np.exp(-(slope * scores + offset)))
        error, curve = weights * (p - target), weights * p * (1 - p)
        gradient = np.array([error @ scores, error.sum()])
        hessian = np.array(
            [[curve @ scores**2, curve @ scores], [curve @ scores, curve.sum()]]
        ) + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        slope, offset = slope - step[0], offset - step[1]
        if np.abs(step).max() < 1e-9:
            break
    return float(slope), float(offset)


def rounded(
    regressions: Sequence[Array], lines: Sequence[tuple[float, float]], hashes: Array, values: Array
) -> Weights:
    """The file's weights of regressions and their calibrations."""
    full = np.stack([one[:-1] for one in regressions], axis=1)
    scale = np.maximum(np.abs(full).max(axis=0), 1e-9) / _QUANTILE
    slopes, offsets = np.array(lines).T
    bias = slopes * np.array([one[-1] * _BIAS for one in regressions]) + offsets
    return Weights(np.rint(full / scale).astype(np.int16), scale * slopes, bias, hashes, values)


def known_tokens(sets: Sequence[LabelledTexts], classes: dict[int, int]) -> tuple[Array, Array]:
    """(uint64 hashes ascending, uint8 values) of the tokens of at least `TEXTS` texts, and of those with a class."""
    owners = []
    for one in sets:
        found = tokens_of(one.texts)
        text = np.repeat(np.arange(len(one.texts)), found.bounds[:, 1] - found.bounds[:, 0])
        pairs = np.unique(np.stack([text.astype(np.uint64), found.hashes], axis=1), axis=0)
        owners.append(pairs[:, 1])
    hashes, counts = np.unique(np.concatenate(owners), return_counts=True)
    values = dict.fromkeys(hashes[counts >= TEXTS].tolist(), KNOWN)
    for token, number in classes.items():
        values[token] = values.get(token, 0) | number
    ordered = sorted(values)
    return np.array(ordered, np.uint64), np.array([values[token] for token in ordered], np.uint8)


@compiled
def _descend(
    offsets: Any, features: Any, values: Any, signs: Any, upper: Any, orders: Any, weights: Any
) -> None:
    """Dual coordinate descent for logistic regression with a ridge penalty (Yu, Huang and Lin 2011, algorithm 5), one
    coordinate by Newton's method at a time; `upper` are the texts' weights, `orders` the epochs' orders."""
    dual = np.empty(len(signs))
    squares = np.zeros(len(signs))
    for i in range(len(signs)):
        dual[i] = min(1e-3 * upper[i], 1e-8)
        for k in range(offsets[i], offsets[i + 1]):
            squares[i] += values[k] * values[k]
            weights[features[k]] += signs[i] * dual[i] * values[k]
    for epoch in range(len(orders)):
        for place in range(len(signs)):
            i = orders[epoch, place]
            top, curve, slope = upper[i], squares[i], 0.0
            for k in range(offsets[i], offsets[i + 1]):
                slope += weights[features[k]] * values[k]
            slope *= signs[i]
            old = dual[i]
            # Of the dual variable and its complement, the one whose solution is nearer to 0 is solved for.
            mirrored = 0.5 * curve * (top - 2 * old) + slope < 0
            z = top - old if mirrored else old
            start = z
            slope = -slope if mirrored else slope
            if z > 0.5 * top:
                z *= 0.1
            for _ in range(100):
                g = curve * (z - start) + slope + np.log(z / (top - z))
                if abs(g) < 1e-6:
                    break
                z_next = z - g / (curve + top / ((top - z) * z))
                z = 0.1 * z if z_next <= 0 else min(z_next, top * (1 - 1e-12))
            new = top - z if mirrored else z
            change = (new - old) * signs[i]
            dual[i] = new
            for k in range(offsets[i], offsets[i + 1]):
                weights[features[k]] += change * values[k]
