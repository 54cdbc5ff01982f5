"""Numbering plans of telephones, as the `phonenumbers` library knows them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt


@lru_cache(maxsize=256)
def plan(region: str) -> tuple[tuple[int, ...], str]:
    """Lengths of a region's national numbers, and the prefix that is dialled before them."""
    import phonenumbers

    data = phonenumbers.PhoneMetadata.metadata_for_region(region)
    if data is None:
        return (), ""
    lengths = data.general_desc.possible_length if data.general_desc else ()
    return tuple(lengths), data.national_prefix or ""


def plans(regions: Sequence[str]) -> npt.NDArray[np.int64]:
    """The regions' plans as `kernels.runs.run` takes them: a row that tells whether the North American plan is one of
    them, then per region the first digit of its national prefix (-1: none), the prefix's length, a bit per length."""
    rows = [(int(any(nanp(region) for region in regions)), 0, 0)]
    for region in regions:
        sizes, prefix = plan(region)
        bits = sum(1 << size for size in sizes)
        rows.append((int(prefix[0]) if prefix else -1, len(prefix), bits))
    return np.array(rows, dtype=np.int64)


@lru_cache(maxsize=256)
def nanp(region: str) -> bool:
    """Whether the region is of the North American plan."""
    import phonenumbers

    return bool(phonenumbers.country_code_for_region(region) == 1)


def known_region(region: str) -> bool:
    """Whether `phonenumbers` has a plan for the region (ISO 3166, upper case)."""
    import phonenumbers

    return region in phonenumbers.SUPPORTED_REGIONS


@lru_cache(maxsize=4096)
def possible(number: str, region: str | None) -> bool:
    """Whether a number has a length that its plan knows."""
    import phonenumbers

    try:
        parsed = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return False
    return bool(
        phonenumbers.is_possible_number_with_reason(parsed) == phonenumbers.ValidationResult.IS_POSSIBLE
    )


@lru_cache(maxsize=4096)
def valid(number: str, region: str | None) -> bool:
    """Whether a number is in a range that its plan has assigned."""
    import phonenumbers

    try:
        return bool(phonenumbers.is_valid_number(phonenumbers.parse(number, region)))
    except phonenumbers.NumberParseException:
        return False
