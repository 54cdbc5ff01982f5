"""Saved in one layout, taken up in another: every pair of six, with experts, dropout and optimizer states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.train.parallel.matrix import LAYOUTS
from tests.train.test_resume import environment


def test_every_layout_goes_on_from_every_other_ones_checkpoint(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    done = subprocess.run(
        [*command, "-m", "tests.train.parallel.matrix", str(tmp_path)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    told = [line for line in done.stdout.splitlines() if " -> " in line]
    assert told == [f"{a} -> {b}" for b in LAYOUTS for a in LAYOUTS] and done.returncode == 0, (
        done.stdout + done.stderr
    )
