"""On shards each optimizer takes the step that it takes on whole parameters."""

from __future__ import annotations

from tests.forks import launch
from tests.train.optim.test_state import KINDS


def test_two_processes_with_shards_step_as_one_with_all() -> None:
    done = launch(2, "tests.train.optim.sharded", *KINDS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(KINDS)
