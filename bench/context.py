"""Context parallelism: what a process keeps of a long sequence, and how long forward and backward take, beside one process."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from statistics import median
from typing import Any

from bench import _bare
from bench._context_rank import MODEL, VOCABULARY, config_of

LENGTHS = (2048, 4096)
CASES = ((1, "own"), (2, "gathered"), (2, "ring"), (4, "gathered"), (4, "ring"))
ROUNDS = 3


def measure(processes: int, length: int, keys: str) -> dict[str, Any]:
    """What the first of so many processes prints."""
    words = ["-m", "bench._context_rank", str(length), str(ROUNDS), keys]
    if processes > 1:
        words = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def estimated(processes: int, length: int, keys: str) -> float:
    """Bytes of activations, as `corpusmill estimate` has them, and of what the loss keeps: in chunks the head's gradient, else
    probabilities."""
    from corpusmill.train.tools.estimate.layout import Layout, shape_of
    from corpusmill.train.tools.estimate.memory import Work, memory

    config = config_of(length, processes)
    work = Work(1, length, 1, config.optimizer, "fp32", cpu=True, documents=True)
    shape = shape_of(config.model, VOCABULARY)
    own = length // processes
    of_loss = (shape.dim if own > config.model.loss_chunk else own) * shape.vocab * 4
    return memory(shape, Layout(cp=processes, ring=keys == "ring"), work).activations + of_loss


def main() -> None:
    """Print Markdown."""
    argparse.ArgumentParser(
        prog="python -m bench.context", description=f"{__doc__} About two minutes."
    ).parse_args()
    _bare.stand_in()
    cores = os.cpu_count() or 1
    sys.stdout.write(
        f"A model of {MODEL['layers']} layers of {MODEL['dim']}, {MODEL['heads']} heads and {MODEL['kv_heads']} of keys and values, fp32, one"
        f" sequence of four documents, processes of one thread on {cores} cores, gloo. Kept: bytes that the forward pass of a process keeps for"
        " the backward pass, weights left out; seconds of forward and backward, medians of"
        f" {ROUNDS}. On a CPU attention on gathered keys keeps its mask, every key for each of a process's positions, and a ring computes its parts again in the backward pass; PyTorch's own context parallelism"
        " does not run on one.\n\n"
        "| tokens | processes | keys | kept, MB | of one process | estimate, MB | s | of one process |\n"
        "|---:|---:|---|---:|---:|---:|---:|---:|\n"
    )
    for length in LENGTHS:
        first: dict[str, Any] | None = None
        for processes, keys in CASES:
            found = measure(processes, length, keys)
            first = first or found
            seconds = median(found["seconds"])
            sys.stdout.write(
                f"| {length:,} | {processes} | {keys} | {found['kept'] / 1e6:.1f} | {found['kept'] / first['kept']:.2f}"
                f" | {estimated(processes, length, keys) / 1e6:.1f} | {seconds:.2f} | {seconds / median(first['seconds']):.2f} |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
