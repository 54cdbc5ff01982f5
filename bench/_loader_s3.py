"""The loader on an S3-compatible server on loopback, beside the server's own speed: the same blocks, read raw."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench._loader_ours import alone
from bench.object_store import BUCKET, serve

ROUNDS, THREADS, WORLDS = 2, (4, 16), (1, 2, 4, 8)


def measure(root: str) -> dict[str, Any]:
    """Rates of one process and of raw reading, alternating, what ranks fetch, seconds to the first batch.

    Raises `NoServer`.
    """
    import os

    from corpusmill.common.storage import Folder

    url = f"s3://{BUCKET}/set"
    with tempfile.TemporaryDirectory() as place, serve(Path(place)) as environment:
        before = dict(os.environ)
        os.environ |= environment
        try:
            for file in sorted(Path(root).rglob("*")):
                if file.is_file():
                    (Folder(url) / str(file.relative_to(root))).write(file.read_bytes())
            epochs: list[dict[str, float]] = []
            raws: list[float] = []
            for _ in range(ROUNDS):
                raws.append(max(_rate(alone("raw", url, threads)) for threads in THREADS))
                epochs.append(alone("epoch", url, 1))
            worlds = {1: epochs[-1], **{world: alone("epoch", url, world) for world in WORLDS[1:]}}
            first = alone("first", url)
        finally:
            os.environ.clear()
            os.environ.update(before)
    return {
        "tokens_per_second": median(one["tokens"] / one["seconds"] for one in epochs),
        "raw_bytes_per_second": median(raws),
        "share": median(one["bytes"] / one["seconds"] / raw for one, raw in zip(epochs, raws, strict=True)),
        "worlds": worlds,
        "before_mb": epochs[-1]["before_mb"],
        "peak_mb": max(one["peak_mb"] for one in epochs),
        "first": first,
    }


def _rate(answer: dict[str, float]) -> float:
    return answer["bytes"] / answer["seconds"]


def lines(found: dict[str, Any]) -> list[str]:
    """Lines of Markdown."""
    raw = found["raw_bytes_per_second"]
    table = [
        f"One epoch from an S3-compatible server (SeaweedFS on loopback, on the same cores), one process, opening included:"
        f" {found['tokens_per_second'] / 1e6:.1f} M tokens/s. The same blocks read raw, with {THREADS[0]} or {THREADS[1]}"
        f" requests at once, whichever is faster: {raw / 1e6:.0f} MB/s, {raw / 2e6:.1f} M tokens/s; the loader fetched"
        f" {found['share']:.0%} of that. Peak RSS {found['peak_mb']:.0f} MB, {found['before_mb']:.0f} MB of it before the"
        f" stream was opened.",
        "",
        "| ranks, read in turn | bytes fetched, of those of the tokens | requests per 10^9 tokens | retries |",
        "|---:|---:|---:|---:|",
    ]
    for world, one in found["worlds"].items():
        table.append(
            f"| {world} | {one['bytes'] / (2 * one['tokens']):.3f} | {one['requests'] / one['tokens'] * 1e9:,.0f} |"
            f" {one['retries']:.0f} |"
        )
    return [*table, "", "What was fetched ahead and not used counts, and so do document starts."]
