"""Shares with their confidence intervals."""

from __future__ import annotations

import math
from typing import Any

Z95 = 1.959964


def wilson(found: float, of: float, z: float = Z95) -> tuple[float, float]:
    """The 95 % confidence interval of a share (Wilson 1927); (0, 1) for a share of nothing."""
    if of == 0:
        return 0.0, 1.0
    share = found / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def share(found: int, of: int, independent: float | None = None) -> dict[str, Any]:
    """A share with its interval; null when there was nothing to count.

    Where the things counted depend on one another, `independent` says as how many the interval takes them
    (`effective`), at most `of`.
    """
    if independent is None or independent >= of:
        low, high = wilson(found, of)
        effective: dict[str, Any] = {}
    else:
        low, high = wilson(found * independent / of, independent)
        effective = {"effective": round(independent, 1)}
    value = round(found / of, 6) if of else None
    interval = {"low": round(low, 6), "high": round(high, 6)}
    return {"value": value, "found": found, "of": of, **interval, **effective}
