"""kill -9 of one process, or of all, while they save: the next start goes on from the last whole checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.train.processes import torchrun
from tests.train.test_resume import outcome

# Dies by SIGKILL, once, where a process of `RANKS` has written half of its files of step 15.
KILLED = """
import os, signal
from pathlib import Path
from corpusmill.common.storage import Folder
create = Folder.create
def dying(self):
    if "step-000015/optimizer" in self.path and int(os.environ["RANK"]) in RANKS:
        mark = Path(__file__).parent / f"killed-{os.environ['RANK']}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return create(self)
Folder.create = dying
from corpusmill.train.__main__ import main
main()
"""


@pytest.mark.slow
def test_killed_while_saving(write_config: Callable[..., Path], tmp_path: Path) -> None:
    settings = {"model.dropout": 0.1, "data.micro_batch": 2}
    done = torchrun(
        2, "-m", "corpusmill.train", str(write_config(**settings, output=str(tmp_path / "unbroken")))
    )
    assert done.returncode == 0, done.stderr
    expected = outcome(str(tmp_path / "unbroken"))
    script = tmp_path / "killed.py"
    # One dies, and torchrun starts all again.
    script.write_text(KILLED.replace("RANKS", "(1,)"))
    one = str(tmp_path / "one")
    done = torchrun(2, "--max-restarts", "1", str(script), str(write_config(**settings, output=one)))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed-1").exists() and "step-000015: not taken: it has no manifest" in done.stderr
    assert "continuing after step 10" in done.stderr and outcome(one) == expected
    # All die; started by hand.
    (tmp_path / "killed-1").unlink()
    script.write_text(KILLED.replace("RANKS", "(0, 1)"))
    file = str(write_config(**settings, output=str(tmp_path / "all")))
    done = torchrun(2, script, file)
    assert done.returncode != 0 and list(tmp_path.glob("killed-*"))
    left = {path.name for path in (tmp_path / "all/checkpoints/step-000015").iterdir()}
    assert "manifest.json" not in left
    done = torchrun(2, "-m", "corpusmill.train", file)
    assert done.returncode == 0 and "continuing after step 10" in done.stderr, done.stderr
    assert outcome(str(tmp_path / "all")) == expected
