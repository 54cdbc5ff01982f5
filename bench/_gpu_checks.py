"""The ten checks of tests/gpu as bench/train_gpu.py runs them: each in a process of its own, with torch and numpy alone.

`python -m bench._gpu_checks found_inf` prints one line of JSON. `--stand-in`: on the CPU's stand-in for a device."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import _bare

HERE = Path(__file__).resolve().parent
# Known without importing torch; tests/bench/test_train.py compares them with those of tests/gpu/checks.py.
NAMES = (
    "no waits in a step", "found_inf", "offloaded optimizer", "variable-length attention", "FlexAttention", "fp8", "compile",
    "experts", "batches arrive", "two ranks",
)  # fmt: skip


def measure(names: list[str], until: float, stand_in: bool) -> list[dict[str, Any]]:
    """A row for each check: `outcome` passed, failed or not run, and why."""
    rows = []
    for name in names:
        row = {"check": name, **alone(name, until - time.monotonic(), stand_in)}
        print(f"{name}: {row['outcome']} {row['why']}", file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def alone(name: str, seconds: float, stand_in: bool) -> dict[str, Any]:
    """A check in its own process."""
    if seconds < 1:
        return {"outcome": "not run", "why": "no time was left (--budget)"}
    command = [sys.executable, "-m", "bench._gpu_checks", name, *(["--stand-in"] if stand_in else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, timeout=seconds)
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {"outcome": "failed", "why": f"not done after {seconds:.0f} s"}
    except (ValueError, IndexError):
        return {"outcome": "failed", "why": f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown; no lines without rows."""
    if not rows:
        return []
    lines = ["| check (tests/gpu/checks.py) | outcome | |", "|---|---|---|"]
    lines += [f"| {row['check']} | {row['outcome']} | {row['why']} |" for row in rows]
    passed = sum(row["outcome"] == "passed" for row in rows)
    return [*lines, "", f"{passed} of {len(rows)} passed."]


def run(name: str, stand_in: bool) -> dict[str, Any]:
    import torch

    from tests.gpu.checks import CHECKS, ON_CPU, NotHere
    from tests.gpu.machines import Cuda, Fake, Machine
    from tests.train.fake_cuda import FakeCuda

    began = time.monotonic()
    if stand_in:
        torch.set_num_threads(1)  # of tiny tensors
    with ExitStack() as stack:
        try:
            machine: Machine = Machine()
            if not stand_in:
                machine = Cuda()
            elif name not in ON_CPU:
                machine = Fake(stack.enter_context(FakeCuda()))
            CHECKS[name](machine)
        except NotHere as reason:
            return {"outcome": "not run", "why": str(reason)}
        except Exception as error:  # whatever a device may raise is the check's outcome
            traceback.print_exc()
            why = " ".join(f"{type(error).__name__}: {error}".split()).replace("|", "/")
            return {"outcome": "failed", "why": why[:300]}
    return {"outcome": "passed", "why": f"{time.monotonic() - began:.0f} s"}


def main() -> None:
    message = _bare.stand_in()
    if message:
        print(message, file=sys.stderr)
    print(json.dumps(run(sys.argv[1], "--stand-in" in sys.argv)))


if __name__ == "__main__":
    main()
