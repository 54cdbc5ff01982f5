"""Differences of arms from the whole recipe, in bits per byte, with what is uncertain of them: which documents were drawn to learn from
(or which seed), and which are scored.

A difference is paired: the same draw and the same held-out documents on both sides. Its squared error is the sum of both parts; several
arms share the estimate of the first (pooled variance), but for those whose draws are unlike the others'. Holm's correction is over all arms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from corpusmill.train.evaluate.statistics import holm, linearised

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Verdict = Literal["worse", "better", "equal", "unclear"]
LEVEL, ALPHA = 0.95, 0.05
SMALLEST = 0.005  # bits a byte: differences below are of no interest
UNLIKE = 2.0  # an arm whose draws deviate so many times as much as the middle one's has an error of its own


class Difference(NamedTuple):
    """Of an arm's bits per byte from the whole recipe's: positive where the arm predicts the held-out text worse. `low`, `high`: interval
    of 95 %; `draws`, `documents`: the parts of its standard error; `p`: adjusted by Holm."""

    value: float
    low: float
    high: float
    draws: float
    documents: float
    p: float

    def verdict(self, smallest: float = SMALLEST) -> Verdict:
        """worse, better, equal (the whole interval lies within the smallest difference of interest) or unclear."""
        if -smallest < self.low and self.high < smallest:
            return "equal"
        if self.p < ALPHA and abs(self.value) >= smallest:
            return "worse" if self.value > 0 else "better"
        return "unclear"


def differences(
    bits: Mapping[str, Floats], size: Floats, whole: str, control: str, halves: bool
) -> dict[str, Difference]:
    """Of every arm but `whole`. `bits`: of each arm, float64 [draws, documents]; `size`: bytes of the documents; `control`: the arm whose
    draws are others, which has an error of its own. `halves`: draws are halves of the documents, whose deviation is the error of the
    whole; else independent runs, whose mean is as much more certain. Raises `ValueError` for fewer than 3 draws."""
    base = bits[whole]
    draws = len(base)
    if draws < 3:
        raise ValueError(f"{draws} draws: an interval needs 3")
    by_draw = {name: (found - base).sum(1) / size.sum() for name, found in bits.items() if name != whole}
    own = {name: float(np.std(found, ddof=1)) for name, found in by_draw.items()}
    usual = float(np.median([one for name, one in own.items() if name != control] or [0.0]))
    alike = [name for name, one in own.items() if name != control and one <= UNLIKE * usual]
    pooled = math.sqrt(sum(own[name] ** 2 for name in alike) / max(1, len(alike)))
    parts: dict[str, tuple[float, float, float, int]] = {}
    for name, found in by_draw.items():
        spread, free = pooled, len(alike) * (draws - 1)
        if name not in alike:
            spread, free = own[name], draws - 1
        of_draws = spread if halves else spread / math.sqrt(draws)
        each = linearised((bits[name] - base).mean(0), size)
        of_documents = float(np.std(each, ddof=1)) / math.sqrt(len(each)) if len(each) > 1 else math.nan
        parts[name] = float(found.mean()), of_draws, of_documents, free
    ps = dict.fromkeys(parts, 1.0)
    tested = [name for name in parts if name != control]
    raw = [_p(value, math.hypot(a, b), free) for value, a, b, free in (parts[name] for name in tested)]
    ps.update(zip(tested, holm(raw), strict=True))
    found_all = {}
    for name, (value, a, b, free) in parts.items():
        reach = float(stdtrit(free, (1 + LEVEL) / 2)) * math.hypot(a, b)
        found_all[name] = Difference(value, value - reach, value + reach, a, b, ps[name])
    return found_all


def _p(value: float, se: float, free: float) -> float:
    """Two-sided, of no difference."""
    if se == 0:
        return 1.0 if value == 0 else 0.0
    return 2 * float(stdtr(free, -abs(value) / se))
