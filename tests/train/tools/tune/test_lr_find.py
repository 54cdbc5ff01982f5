"""The range test: its curve, where it stops, what it suggests, what it leaves alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.tools.tune.lr_find import diverged, range_test, smoothed, suggestions, valley
from tests.train.test_commands import command

Write = Callable[..., Path]


def test_the_smoothed_curve_is_corrected_for_its_start() -> None:
    assert smoothed([3.0, 3.0, 3.0]) == pytest.approx([3.0, 3.0, 3.0])
    assert smoothed([4.0, 2.0], beta=0.5) == pytest.approx([4.0, (0.25 * 4 + 0.5 * 2) / 0.75])


def test_what_has_diverged() -> None:
    assert diverged([]) is None and diverged([5.0, 4.0, 4.4]) is None
    assert diverged([5.0, math.nan]) == diverged([5.0, math.inf]) == "the loss is not a finite number"
    assert diverged([5.0, None]) == "the loss is not a finite number"
    assert diverged([5.0, 4.0, 12.0]) and not diverged([5.0, 4.0, 12.0], factor=3)
    assert diverged([5.0] * 20 + [9.0]) is None  # one spike is not a trend
    assert diverged([5.0] * 20 + [9.0] * 12)


def test_suggestions_read_off_a_known_curve() -> None:
    rates = [
        10 ** (-5 + i / 10) for i in range(41)
    ]  # falls from 1e-4 on, fastest at 1e-3, up again from 1e-2
    means = [
        5 - math.tanh(2 * (math.log10(rate) + 3)) + 20 * max(0, math.log10(rate) + 2) ** 2 for rate in rates
    ]
    found = suggestions(rates, means)
    assert found["steepest"] == pytest.approx(1e-3, rel=0.01)
    assert found["minimum_tenth"] == pytest.approx(1e-3, rel=0.3)
    assert 1e-4 < found["valley"] < 1e-2
    assert suggestions(rates[:3], means[:3]) == {}
    assert valley([5, 4, 3, 2, 1, 9, 9]) == 2


def test_it_stops_where_the_loss_blows_up_and_leaves_the_run_alone(
    write_config: Write, tmp_path: Path
) -> None:
    file = write_config()
    out = tmp_path / "found"
    result = json.loads(
        command("lr-find", file, "--low", "1e-5", "--high", "100", "--steps", "60", "--out", out, "--json")
    )
    curve = result["curve"]
    assert result == json.loads((out / "lr-find.json").read_text())
    assert curve[0]["lr"] == pytest.approx(1e-5)
    ratio = 1e7 ** (1 / 59)
    assert all(b["lr"] / a["lr"] == pytest.approx(ratio) for a, b in pairwise(curve))
    assert 20 < len(curve) < 60 and result["stopped_at"] == curve[-1]["lr"]
    lowest = min(row["smoothed"] for row in curve)
    assert lowest < curve[0]["loss"] - 0.05 and "the guard would go back: loss" in result["because"]
    assert curve[-1]["loss"] > 1.2 * lowest
    assert all(1e-5 < rate < result["stopped_at"] for rate in result["suggestions"].values())
    assert not (tmp_path / "run").exists()
    page = (out / "lr-find.html").read_text()
    assert page.count("<svg") == 1 and "http" not in page and "valley" in page
    again = command("lr-find", file, "--low", "1e-5", "--high", "100", "--steps", "60", "--out", out)
    assert json.loads((out / "lr-find.json").read_text()) == result  # to the bit
    assert "steepest" in again and max(map(len, again.splitlines())) <= 80


def test_a_curve_that_does_not_rise_ends_at_the_last_step(write_config: Write, tmp_path: Path) -> None:
    config = load(TrainConfig, write_config(**{"data.stages": [{"from_step": 9, "weights": {"wiki": 1}}]}))
    result = range_test(config, 1e-5, 1e-4, 12, Folder(tmp_path / "found"))
    assert result["stopped_after"] == 12 and result["because"] == "the highest rate is reached"
    assert result["stopped_at"] == pytest.approx(1e-4)


def test_wrong_options_are_reported(write_config: Write) -> None:
    for options, words in ((["--low", "1"], "low must be above 0"), (["--factor", "1"], "must be above 1")):
        with pytest.raises(UserError, match=words):
            command("lr-find", write_config(), *options)
