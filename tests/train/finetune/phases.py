"""`corpusmill train` in a process that dies by SIGKILL before a step: `phases CONFIG [STEP]`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from corpusmill.common.config import load
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import trainer


def main(config: str, step: str | None = None) -> None:
    healthy = trainer.train_step

    def fatal(state: Any, *rest: Any, **more: Any) -> Any:
        if step is not None and state.step == int(step):
            os.kill(os.getpid(), signal.SIGKILL)
        return healthy(state, *rest, **more)

    trainer.train_step = fatal
    trainer.train(load(TrainConfig, config, []))


if __name__ == "__main__":
    main(*sys.argv[1:])
