"""What is measured of `StreamingTokens`, each in a process of its own: `alone("speed", ...)` runs it and reads its answer.

Every figure is of the stream as a user gets it: prefetch, memory and checks at their defaults.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench._loader_set import BATCH, SEQUENCE

WARM, AGAIN, FAR = 10, 7, 1_000_000  # batches, streams opened, the step to resume at


def alone(task: str, *arguments: str | float | Path, environment: dict[str, str] | None = None) -> Any:
    """What `task` returns in a fresh process."""
    command = [sys.executable, "-m", "bench._loader_ours", task, *map(str, arguments)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **(environment or {})},
        cwd=Path(__file__).resolve().parent.parent,
    )  # fmt: skip
    return json.loads(done.stdout.strip().splitlines()[-1])


def _stream(url: str, **more: Any) -> Any:
    from corpusmill.train.data import StreamingTokens

    return StreamingTokens(url, sequence_length=SEQUENCE, global_batch=BATCH, **more)


def _peak_mb() -> float:
    """10^6 bytes. (`getrusage` would count the parent's before it.)"""
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024 / 1e6


def _sequences(url: str) -> int:
    from corpusmill.train.data.shards import open_shards

    return sum(int(source.sequences(SEQUENCE).sum()) for source in open_shards(url).train.values())


def speed(url: str, seconds: str, *names: str) -> dict[str, float]:
    """Tokens/s after some batches of warming up, and the highest resident memory of the process. `names`: what is asked
    of a batch beside tokens and labels."""
    with _stream(url) as stream:
        for _ in range(WARM):
            next(stream)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < float(seconds):
            batch = next(stream)
            count += batch["tokens"].numel()
            for name in ("labels", *names):
                batch[name]
        return {"tokens_per_second": count / (time.perf_counter() - began), "peak_mb": _peak_mb()}


def epoch(url: str, world: str) -> dict[str, float]:
    """All sequences once, rank after rank, from opening to the last batch: tokens, seconds, and what was fetched."""
    import corpusmill.train.data.stream  # noqa: F401 (what is imported is neither the stream's time nor its memory)

    before, steps, ranks = _peak_mb(), _sequences(url) // BATCH, int(world)
    found: Counter[str] = Counter()
    began = time.perf_counter()
    for rank in range(ranks):
        with _stream(url, dp_rank=rank, dp_world=ranks) as stream:
            for _ in range(steps):
                found["tokens"] += next(stream)["tokens"].numel()
            found.update(stream.fetched)
    return {**found, "seconds": time.perf_counter() - began, "before_mb": before, "peak_mb": _peak_mb()}


def raw(url: str, threads: str) -> dict[str, float]:
    """Seconds for the bytes of every block and its document starts, one request a block, kept nowhere."""
    from corpusmill.train.data.shards import open_shards

    ranges = [
        (source.folder / shard.url, block.offset, block.docs_offset + block.docs_size - block.offset)
        for source in open_shards(url).train.values()
        for shard, block in source.blocks
    ]
    ranges[0][0].read_range(*ranges[0][1:])
    began = time.perf_counter()
    with ThreadPoolExecutor(int(threads)) as pool:
        total = sum(pool.map(lambda some: len(some[0].read_range(*some[1:])), ranges))
    return {"bytes": total, "seconds": time.perf_counter() - began}


def first(url: str) -> dict[str, list[float]]:
    """Seconds until the first batch, at step 0 and at a late step, alternating: [opening, and from there to the batch] of each.

    Every stream has another seed, so that no order is remembered. The first stream of the process, whose imports are done, is `cold`.
    """
    import corpusmill.train.data.stream  # noqa: F401

    found: dict[str, list[float]] = {"cold": [], "start": [], "far": []}
    for seed, name in enumerate(["cold", *["start", "far"] * AGAIN]):
        began = time.perf_counter()
        with _stream(url, seed=seed) as stream:
            opened = time.perf_counter()
            if name == "far":
                stream.load_state_dict({**stream.state_dict(), "n": BATCH * FAR})
            batch = next(stream)
            found[name] += [opened - began, time.perf_counter() - opened]
        assert int(batch["n"][0]) == (BATCH * FAR if name == "far" else 0)
    return found


def order(url: str, out: str) -> dict[str, int]:
    """The first four tokens of every sequence of one epoch of the first source, saved."""
    from corpusmill.train.data.shards import open_shards

    name, source = next(iter(open_shards(url).train.items()))
    steps = int(source.sequences(SEQUENCE).sum()) // BATCH
    with _stream(url, weights={name: 1.0}) as stream:
        np.save(out, np.concatenate([next(stream)["tokens"][:, :4].numpy() for _ in range(steps)]))
    return {"steps": steps}


def fill(seconds: str) -> dict[str, float]:
    """Tokens/s of nothing but writing: rows of a block as int64, block after block, into the same few arrays."""
    data = np.random.default_rng(0).integers(0, 50_000, (64, BATCH * 8, SEQUENCE + 1), dtype=np.uint16)
    arrays = np.empty((4, BATCH * 8, SEQUENCE + 1), dtype=np.int64)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < float(seconds):
        np.copyto(arrays[count % len(arrays)], data[count % len(data)])
        count += 1
    size = BATCH * 8 * SEQUENCE
    return {
        "tokens_per_second": count * size / (time.perf_counter() - began),
        "bytes_per_token": arrays[0].nbytes / size,
    }


TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task for task in (speed, epoch, raw, first, order, fill)
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
