"""The plan of a run over ten trillion tokens on 4,096 ranks: time and memory to build it, time to find any batch."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

TOKENS = 10e12
SHARES = {
    "web": 0.6, "code": 0.15, "books": 0.08, "papers": 0.07, "forums": 0.05, "math": 0.03, "wiki": 0.015, "law": 0.005,
}  # fmt: skip
BLOCK, BLOCKS = 2**19, 512  # tokens in a block, blocks in a tar
SEQUENCE, WORLD, STEPS = 4096, 4096, 600_000
CONFIG = {
    "shards": "simulated", "sequence_length": SEQUENCE, "global_batch": 8192, "micro_batch": 1,
    "batch_ramp": {50_000: 4096}, "weights": SHARES, "fetch": {"memory_mb": 2048},
    "stages": [{"from_step": 500_000, "weights": {**SHARES, "web": 0.4, "math": 0.1, "code": 0.28}}],
}  # fmt: skip


def shapes() -> dict[str, Any]:
    """Tars of 512 blocks, the last block of each cut short, as `corpusmill shard` writes them."""
    from corpusmill.train.data.planning import Shape

    found, full = {}, (BLOCK - 1) // SEQUENCE
    for number, (name, share) in enumerate(SHARES.items()):
        tars = round(TOKENS * share / (BLOCK * (BLOCKS - 0.5)))
        short = np.random.default_rng(number).integers(1, full + 1, tars)
        counts, cells = np.tile([BLOCKS - 1, 1], tars), np.stack([np.full(tars, full), short], 1).ravel()
        tokens = int((counts * cells).sum()) * SEQUENCE
        found[name] = Shape(tokens, BLOCK, f"{number:032x}", counts, cells)
    return found


def simulate() -> dict[str, Any]:
    """One process: what it takes."""
    from corpusmill.schemas.data import DataConfig
    from corpusmill.train.data.inspect import reads
    from corpusmill.train.data.order import order
    from corpusmill.train.data.planning import epochs, plan_of

    sources = shapes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    plan = plan_of(DataConfig.model_validate(CONFIG), sources, 1, STEPS)
    digest, segments = plan.sha256, len(plan.segments)
    built = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resume = {}
    for step in (1, 50_001, 300_000, 500_001, STEPS):
        rank, times = WORLD - 1, []
        for _ in range(5):
            began = time.perf_counter()
            assert plan.step_at(plan.end_of(step - 1)) == step
            order(plan, plan.numbers(step, rank, WORLD))
            times.append(time.perf_counter() - began)
        resume[step] = sorted(times)[2]
    fetched = reads(plan, [BLOCK * 2 + 4096] * len(sources), 2, WORLD, 2 << 30)
    times = epochs(plan, STEPS)
    return {
        "build": built, "mib": (peak - before) / 1024, "peak_mib": peak / 1024, "sha256": digest, "segments": segments,
        "resume": resume, "tokens": plan.tokens(STEPS), "there": sum(s.tokens for s in sources.values()),
        "blocks": sum(s.blocks for s in plan.sources), "epochs": [min(times.values()), max(times.values())],
        "fetched": fetched.fetched, "requests": fetched.requests / SEQUENCE * 1e9, "resident": fetched.resident,
    }  # fmt: skip


def main() -> None:
    code = "import json; from bench.loader_plan import simulate; print(json.dumps(simulate()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(
        f"{found['there'] / 1e12:.1f} T tokens in {len(SHARES)} sources, {found['blocks'] / 1e6:.1f} M blocks; {WORLD:,}"
        f" ranks, {STEPS:,} steps of 4,096, then 8,192 sequences of {SEQUENCE:,} ({found['tokens'] / 1e12:.1f} T tokens,"
        f" {found['epochs'][0]:.1f} to {found['epochs'][1]:.1f} epochs of a source), {found['segments']} stages. Blocks are"
        " described by runs of equal ones, as a reader of the indexes would describe them.\n"
    )
    print("| | |\n|---|---:|")
    print(f"| plan built and hashed | {found['build']:.2f} s |")
    print(f"| memory it took; peak of the process | {found['mib']:.0f} MiB; {found['peak_mib']:.0f} MiB |")
    print(f"| fetched for each byte trained on | {found['fetched']:.3f} |")
    print(f"| requests for 1 G tokens | {found['requests']:,.0f} |")
    print(f"| blocks open in a rank | {found['resident'] / 2**20:.1f} MiB |")
    print("\nFrom the state `{n, plan}` to the addresses of a rank's next batch (median of 5):\n")
    print("| step | milliseconds |\n|---|---:|")
    for step, seconds in found["resume"].items():
        print(f"| {int(step):,} | {seconds * 1000:.1f} |")


if __name__ == "__main__":
    main()
