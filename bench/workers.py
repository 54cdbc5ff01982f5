"""Workers that train by themselves (DiLoCo): the loss beside synchronous training on as many tokens, and what each sends."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from scipy.special import stdtrit

from bench import _bare
from bench._workers_rank import LENGTH, LOST, MODEL, RATE, ROWS, SEEDS, STEPS, VOCABULARY

WORKERS = (2, 4, 8)
EVERY = 12  # 20 exchanges
WAYS: dict[str, dict[str, Any] | None] = {
    "synchronous": None,
    f"averages, every {EVERY}": {"every": EVERY, "lr": 1.0, "momentum": 0.0},
    "DiLoCo as published: momentum 0.9": {"every": EVERY},
    "DiLoCo, momentum 0.5": {"every": EVERY, "momentum": 0.5},
    "the same, the last worker lost halfway": {"every": EVERY, "momentum": 0.5, LOST: True},
    "streaming, momentum 0.5, 4 fragments, 8 bits": {
        "every": EVERY, "momentum": 0.5, "fragments": 4, "delay": 1, "mix": 0.5, "bits": 8,
    },
}  # fmt: skip
Found = dict[str, list[tuple[float, int]]]  # of each way and seed, the loss and the bytes


def measure(workers: int) -> Found:
    """What the first of so many workers prints."""
    ways = json.dumps(list(WAYS.items()))
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(workers),
            "-m",
            "bench._workers_rank",
            ways,
            folder,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: Found = {name: [] for name in WAYS}
    for line in done.stdout.splitlines():
        if line.startswith("["):
            name, _, loss, sent = json.loads(line)
            found[name].append((loss, sent))
    return found


def main() -> None:
    """Print Markdown."""
    argparse.ArgumentParser(
        prog="python -m bench.workers", description=f"{__doc__} About ten minutes."
    ).parse_args()
    _bare.stand_in()
    sys.stdout.write(
        f"A model of {MODEL['layers']} layers of {MODEL['dim']}, {STEPS} steps of {ROWS} rows of {LENGTH} tokens of the example corpus's books (BPE of"
        f" {VOCABULARY}), which the workers share, AdamW with lr {RATE:g}, processes on gloo. Loss in nats a token of the weights in common on rows"
        f" that no step has read; gap: to synchronous training of the same seed, mean over {SEEDS} seeds and Student's t interval of 95 %."
        " Sent: bytes that a worker gives to be exchanged in the whole run. A lost worker is gone at an exchange, and the others share all rows"
        " from then on. Published defaults (outer lr 0.7, momentum 0.9) are of hundreds of steps between exchanges: with few they add up to"
        f" a step several times as long, here {STEPS // EVERY} times.\n\n"
        "| workers | | loss | gap | 95 % | sent, MB | less |\n|---:|---|---:|---:|---|---:|---:|\n"
    )
    for workers in WORKERS:
        found = measure(workers)
        whole = found["synchronous"]
        for name, runs in found.items():
            loss = statistics.fmean(one for one, _ in runs)
            gaps = [one - other for (one, _), (other, _) in zip(runs, whole, strict=True)]
            half = float(stdtrit(SEEDS - 1, 0.975)) * statistics.stdev(gaps) / SEEDS**0.5
            gap = statistics.fmean(gaps)
            interval = f"{gap - half:+.4f} to {gap + half:+.4f}" if half else ""
            sent = runs[0][1]
            sys.stdout.write(
                f"| {workers} | {name} | {loss:.4f} | {f'{gap / (loss - gap):+.2%}' if half else ''} | {interval} | {sent / 1e6:,.1f} |"
                f" {whole[0][1] / sent:.0f}x |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
