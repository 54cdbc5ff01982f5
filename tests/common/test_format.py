"""Numbers as people read them: the same text for every reader, within a per cent of the number."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.format import (
    compact,
    count,
    duration,
    number,
    percent,
    plain_size,
    quantity,
    rate,
    share,
    short,
    short_span,
    size,
    span,
    time_left,
)  # fmt: skip


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(0, 5, "0 %"), (5, 5, "100 %"), (1, 0, "–"), (99_999, 100_000, "> 99.9 %"), (1, 10**7, "< 0.01 %"),
     (1, 8, "12.5 %"), (1, 1000, "0.1 %")],
)  # fmt: skip
def test_shares(part: int, whole: int, shown: str) -> None:
    assert share(part, whole).replace("\u00a0", " ") == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (2_340_000, "2.34 MB")],
)
def test_sizes(value: int, shown: str) -> None:
    assert size(value).replace("\u00a0", " ") == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (1234567, "1,234,567"), (0.12345, "0.123"), (12.5, "12.5"), (3.0, "3")]
)
def test_numbers(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (999, "999"), (1234, "1.23k"), (5e9, "5G")])
def test_short(value: float, shown: str) -> None:
    assert compact(value) == shown
    assert short(value) == re.sub(r"(?=[kG])", "\u00a0", shown)


def test_times_and_rates() -> None:
    assert [duration(x) for x in (12, 90, 5400, 2 * 86_400, 400 * 86_400)] == [
        "12.0 seconds", "1.50 minutes", "1.50 hours", "2.00 days", "1.10 years",
    ]  # fmt: skip
    assert [time_left(x) for x in (12, 90, 3900, 200_000)] == ["12 s", "2 min", "1 h 05 min", "2 d 7 h"]
    assert [rate(x, 2, "MB") for x in (12.34, 1_999, 2_000, 99_000)] == [
        "6.2 MB/s", "999.5 MB/s", "1,000 MB/s", "49.5 GB/s",
    ]  # fmt: skip
    assert rate(99_000, 2, "tasks") == "49.5k tasks/s"
    assert [short_span(x) for x in (0.001, 0.5, 59, 90, 5940, 8_999, 360_000, 1e8)] == [
        "0s", "0.5s", "59s", "1.5min", "1.6h", "2.5h", "4.2d", "1,157d",
    ]  # fmt: skip
    assert percent(1, 80) == "1.25 %"


@pytest.mark.parametrize(
    ("value", "nouns", "shown"),
    [
        (0, ("task",), "0 tasks"), (1, ("task",), "1 task"), (1.2, ("task",), "1 task"), (1_234, ("task",), "1,234 tasks"),
        (1.5e9, ("task",), "1.5e9 tasks"), (1, ("copy", "copies"), "1 copy"), (2.0, ("copy", "copies"), "2 copies"),
    ],
)  # fmt: skip
def test_numbers_with_their_nouns(value: float, nouns: tuple[str, ...], shown: str) -> None:
    assert quantity(value, *nouns) == shown


def test_numbers_in_few_characters() -> None:
    assert [count(x) for x in (0, 999, 123456, 999_999, 999_999.6, 1.5e6, 1e10, 3.2e13, 2e17, 3e21)] == [
        "0", "999", "123,456", "999,999", "1 M", "1.5 M", "10e9", "32e12", "200e15", "3e21",
    ]  # fmt: skip
    assert [plain_size(x) for x in (0, 512, 999.6, 1500, 999_600, 2.5e6, 3e10, 999.6e9, 1.2e13, 5e15, 2e18)] == [
        "0 B", "512 B", "1 kB", "1.5 kB", "1 MB", "2.5 MB", "30 GB", "1 TB", "12 TB", "5 PB", "2,000 PB",
    ]  # fmt: skip
    assert [span(x) for x in (0, 0.000731, 0.5, 9.996, 45, 600, 86_400, 864_000, 999.6 * 86_400)] == [
        "0 s", "0.731 ms", "0.5 s", "10 s", "45 s", "10 min", "24 h", "10 d", "1,000 d",
    ]  # fmt: skip


SCALES: dict[str, dict[str, float]] = {
    "count": {"": 1, " M": 1e6} | {f"e{power}": 10.0**power for power in range(9, 31, 3)},
    "size": {" B": 1, " kB": 1e3, " MB": 1e6, " GB": 1e9, " TB": 1e12, " PB": 1e15},
    "span": {" ms": 1e-3, " s": 1, " min": 60, " h": 3600, " d": 86_400},
}
SHOWN = {"count": count, "size": plain_size, "span": span}


def parsed(kind: str, text: str) -> float:
    """The value of what was printed."""
    matched = re.fullmatch(r"([\d,]*\d(?:\.\d+)?)(.*)", text)
    assert matched is not None, text
    name = matched[2]
    if kind == "span" and name.endswith(" d"):  # as many days as `count` writes
        return parsed("count", text.removesuffix(" d")) * 86_400
    return float(matched[1].replace(",", "")) * SCALES[kind][name]


def near_borders(kind: str) -> st.SearchStrategy[float]:
    """Any value, and those about a unit of which they may still be a thousand of the one below."""
    borders = [limit * times for limit in SCALES[kind].values() for times in (0.9995, 1, 2, 999.5, 1000)]
    close = st.builds(
        lambda border, off: border * (1 + off), st.sampled_from(borders), st.floats(-2e-3, 2e-3)
    )
    return close | st.floats(0, 1e30 if kind == "count" else 1e21) | st.integers(0, 10**7).map(float)


@pytest.mark.parametrize("kind", SHOWN)
@given(data=st.data())
def test_what_is_printed_is_the_number(kind: str, data: st.DataObject) -> None:
    """It grows with the number, has no exponent of Python's, and is the number within 1 % or, where only whole
    ones are printed (bytes, documents) or nothing smaller (a microsecond), within that."""
    values = st.lists(near_borders(kind), min_size=2, max_size=2).map(sorted)
    low, high = data.draw(values)
    texts = [SHOWN[kind](value) for value in (low, high)]
    assert parsed(kind, texts[0]) <= parsed(kind, texts[1])
    least = 1e-6 if kind == "span" else 0.5
    for value, text in zip((low, high), texts, strict=True):
        assert "e+" not in text and "e-" not in text and len(text) <= 12
        assert parsed(kind, text) == pytest.approx(value, rel=0.01, abs=least)
