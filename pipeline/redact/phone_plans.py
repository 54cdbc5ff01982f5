"""Numbering plans of the `phonenumbers` library: lengths, prefixes, what is possible, what is assigned, and how it is grouped."""

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


def plans(regions: Sequence[str], inferred: Sequence[str] = ()) -> npt.NDArray[np.int64]:
    """The regions' plans as `kernels.candidates.run` takes them: a row that is 1 if the North American plan is one of
    them, then per region the first digit of its national prefix (-1: none), the prefix's length, a bit per length, and 1 for one of
    `inferred`: of these three groups are needed, and the prefix is not."""
    rows = [(int(any(nanp(region) for region in regions)), 0, 0, 0)]
    for region in regions:
        sizes, prefix = plan(region)
        rows.append((int(prefix[0]) if prefix else -1, len(prefix), sum(1 << size for size in sizes), 0))
    bits = {(0, size) for region in inferred for size in plan(region)[0]}
    bits |= {
        (len(prefix), size) for region in inferred for sizes, prefix in (plan(region),) for size in sizes
    }
    for before in {before for before, _ in bits}:
        rows.append((-1, before, sum(1 << size for prefix, size in sorted(bits) if prefix == before), 1))
    return np.array(rows, dtype=np.int64)


def fits(digits: str, region: str) -> bool:
    """Whether a region's numbers have so many digits, with or without what is dialled before them: a quick look."""
    sizes, prefix = plan(region)
    return len(digits) in sizes or (digits.startswith(prefix) and len(digits) - len(prefix) in sizes)


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


@lru_cache(maxsize=4096)
def usual_groups(number: str, region: str) -> tuple[int, ...]:
    """Lengths of the groups in which a valid number of a region is written there."""
    import phonenumbers

    parsed = phonenumbers.parse(number, region)
    written = phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.NATIONAL)
    return tuple(map(len, "".join(c if c.isdigit() else " " for c in written).split()))
