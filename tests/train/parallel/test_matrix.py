"""Saved in one layout, taken up in another, every pair: of six with experts and dropout, and with 8-bit optimizer states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.train.parallel.matrix import CASES
from tests.train.processes import torchrun


@pytest.mark.parametrize("case", CASES)
def test_every_layout_goes_on_from_every_other_ones_checkpoint(case: str, tmp_path: Path) -> None:
    if case == "8 bits":
        pytest.importorskip("torchao")
    layouts = CASES[case].layouts
    done = torchrun(4, "-m", "tests.train.parallel.matrix", tmp_path, case)
    told = [line for line in done.stdout.splitlines() if " -> " in line]
    assert told == [f"{a} -> {b}" for b in layouts for a in layouts] and done.returncode == 0, (
        done.stdout + done.stderr
    )
