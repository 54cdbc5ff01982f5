"""On shards each optimizer takes the step that it takes on whole parameters."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT
from tests.train.optim.test_state import KINDS
from tests.train.test_resume import environment


def test_two_processes_with_shards_step_as_one_with_all() -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m",
            "tests.train.optim.sharded", *KINDS,
        ],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(KINDS)
