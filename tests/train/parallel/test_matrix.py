"""Saved in one layout, loaded in another: of six with experts and dropout, and with 8-bit optimizer states.

Quick, with experts: one layout that cuts its parameters (the hub) reads all others and is read by all; each reads itself, to the bit. What
a layout writes and what it reads are each proven by that, since boxes of whole tensors are all that checkpoints hold. Slow:
the other pairs. With 8-bit states: every pair, in eager mode.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.forks import launch
from tests.train.parallel.matrix import pairs


@pytest.mark.parametrize(
    ("case", "which"),
    [
        pytest.param("experts", "hub", id="experts, hub"),
        pytest.param("experts", "rest", id="experts", marks=pytest.mark.slow),
        pytest.param("8 bits", "all", id="8 bits"),
    ],
)
def test_every_layout_goes_on_from_every_other_ones_checkpoint(case: str, which: str, tmp_path: Path) -> None:
    if case == "8 bits":
        pytest.importorskip("torchao")
    wanted = pairs(case, which)
    done = launch(4, "tests.train.parallel.matrix", tmp_path, case, json.dumps(wanted))
    finished = [line for line in done.stdout.splitlines() if " -> " in line]
    assert finished == [f"{a} -> {b}" for a, b in wanted] and done.returncode == 0, done.stdout + done.stderr
