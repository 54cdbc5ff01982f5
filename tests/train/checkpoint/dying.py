"""`python -m tests.train.checkpoint.dying FOLDER RANKS CONFIG`: the trainer, which dies by SIGKILL, once, where a process of RANKS has
written half of its files of step 15. A file in FOLDER says which have died."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.train.__main__ import main

if __name__ == "__main__":
    marks, ranks = Path(sys.argv.pop(1)), sys.argv.pop(1).split(",")
    create = Folder.create

    def dying(self: Folder) -> Any:
        if "step-000015/optimizer" in self.path and os.environ["RANK"] in ranks:
            mark = marks / f"killed-{os.environ['RANK']}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return create(self)

    Folder.create = dying  # type: ignore[method-assign]
    main()
