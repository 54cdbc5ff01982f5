"""kill -9 of one process, or of all, while they save: the next start goes on from the last whole checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forks import launch
from tests.train.processes import torchrun
from tests.train.test_resume import outcome

DYING = "tests.train.checkpoint.dying"


@pytest.mark.slow
def test_killed_while_saving(write_config: Callable[..., Path], tmp_path: Path) -> None:
    settings = {"model.dropout": 0.1, "data.micro_batch": 2}
    done = launch(2, "corpusmill.train", write_config(**settings, output=str(tmp_path / "unbroken")))
    assert done.returncode == 0, done.stderr
    expected = outcome(str(tmp_path / "unbroken"))
    # One dies, and torchrun starts all again.
    one = str(tmp_path / "one")
    file = str(write_config(**settings, output=one))
    again = torchrun(2, "--max-restarts", "1", "-m", DYING, str(tmp_path), "1", file)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "killed-1").exists() and "step-000015: not taken: it has no manifest" in again.stderr
    assert "continuing after step 10" in again.stderr and outcome(one) == expected
    # All die; started by hand.
    (tmp_path / "killed-1").unlink()
    file = str(write_config(**settings, output=str(tmp_path / "all")))
    done = launch(2, DYING, tmp_path, "0,1", file)
    assert done.returncode != 0 and list(tmp_path.glob("killed-*"))
    left = {path.name for path in (tmp_path / "all/checkpoints/step-000015").iterdir()}
    assert "manifest.json" not in left
    done = launch(2, "corpusmill.train", file)
    assert done.returncode == 0 and "continuing after step 10" in done.stderr, done.stderr
    assert outcome(str(tmp_path / "all")) == expected
