"""`torchrun --nproc-per-node N -m corpusmill.train CONFIG.yaml`: `corpusmill train` in many processes."""

from __future__ import annotations

import os
import sys

import typer

from corpusmill.common.errors import UserError, WorkError
from corpusmill.train.commands.train import train


def main() -> None:
    """Exit codes: 0 done, 1 the work failed, 2 the command or config is wrong."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(train)
    code = 0
    try:
        app()
    except (UserError, WorkError) as error:
        rank = os.environ.get("RANK", "0")
        print(f"error: {error}" if rank == "0" else f"error (process {rank}): {error}", file=sys.stderr)
        code = error.exit_code
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        os._exit(
            code
        )  # all is written; gloo's threads may abort the process if it unwinds while a peer is leaving
    raise SystemExit(code)


if __name__ == "__main__":
    main()
