"""The simulation of the driver: structures of synthetic results, whose memory grows with their number and fits ten billion."""

from __future__ import annotations

import pytest

from bench import _plan_driver as driver


@pytest.mark.parametrize("name", ["manifest", "slice", "row"])
def test_the_driver_holds_ten_billion_documents(name: str) -> None:
    """By the line through two sizes that take a second; the bench has larger ones, and all structures."""
    numbers = {"manifest": (500, 3_000), "slice": (200_000, 1_000_000), "row": (60_000, 300_000)}[name]
    peaks = [driver.in_child(name, number) for number in numbers]
    each = (peaks[1] - peaks[0]) / (numbers[1] - numbers[0])
    assert each > 50
    assert each * driver.NUMBERS[name] < 16e9
