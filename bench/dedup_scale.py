"""The time of the `dedup` stage from a quarter to two million documents, against a straight line.

Corpora of one make (`corpus.py`: the same shares of copies at any size), documents of about 600 bytes, the stage
at its defaults, one thread, Parquet to Parquet. The sizes are run in turns, each in a process of its own, and
the least CPU seconds of the turns count: a neighbour on the machine can only add. The line has an intercept and the
least squares of relative deviations, since the noise of a time grows with it; the deviation from the line of plain
least squares, which the largest corpus governs, is given too. A deviation is (measured - line) / line.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from bench import corpus, dedup_run, natural
from corpusmill.common.storage import Folder

SIZES, MEAN_BYTES, TURNS = (250_000, 500_000, 1_000_000, 2_000_000), 600, 2


def measure(sizes: tuple[int, ...] = SIZES, turns: int = TURNS) -> list[dict[str, Any]]:
    """What `dedup_run.run` gives for each size, of its fastest run, with `documents` and `megabytes`."""
    best: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        corpora = [corpus.write(Folder(place) / str(size), size, MEAN_BYTES) for size in sizes]
        for made in [*corpora] * turns:
            with tempfile.TemporaryDirectory() as name:
                found = dedup_run.run(Folder(name), made.partitions, made.sources)
            found |= {"documents": made.documents, "megabytes": made.megabytes}
            kept = best.setdefault(made.documents, found)
            if found["seconds"]["whole stage"] < kept["seconds"]["whole stage"]:
                best[made.documents] = found
    return [best[size] for size in sizes]


def fit(
    documents: list[int], seconds: list[float], relative: bool = True
) -> tuple[float, float, list[float]]:
    """(slope, intercept, deviations) of the least-squares line of seconds over documents, with an intercept.

    `relative` weighs each point by 1 / seconds. A deviation is (measured - line) / line.
    """
    times = np.array(seconds)
    slope, intercept = np.polyfit(documents, times, 1, w=1 / times if relative else None)
    return float(slope), float(intercept), (times / (slope * np.array(documents) + intercept) - 1).tolist()


def main() -> None:
    """Print the tables."""
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    rows = measure()
    documents = [row["documents"] for row in rows]
    seconds = [row["seconds"]["whole stage"] for row in rows]
    slope, intercept, off = fit(documents, seconds)
    plain = fit(documents, seconds, relative=False)[2]
    print(" ".join((__doc__ or "").split("\n\n")[1].split()) + "\n")
    print(
        "| documents | MB | CPU seconds | per million | line | deviation | MB/s per core | peak memory MiB |"
        " intermediate bytes a document |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for row, time, deviation in zip(rows, seconds, off, strict=True):
        count = row["documents"]
        print(
            f"| {count:,} | {row['megabytes']:,.0f} | {time:.2f} | {time / count * 1e6:.2f} | {slope * count + intercept:.2f} | {deviation:+.1%} |"
            f" {row['megabytes'] / time:.1f} | {row['memory_peak']:,.0f} | {row['scratch_bytes'] / count:,.0f} |"
        )
    print(
        f"\nThe line: {intercept:.2f} s + {slope * 1e6:.2f} s per million documents; the largest deviation"
        f" {max(map(abs, off)):.1%} (from the line of plain least squares {max(map(abs, plain)):.1%}).\n"
    )
    print("| CPU seconds by step | " + " | ".join(f"{count:,}" for count in documents) + " |")
    print("|---|" + "---:|" * len(rows))
    for step in rows[-1]["seconds"]:
        print(f"| {step} | " + " | ".join(f"{row['seconds'].get(step, 0):.2f}" for row in rows) + " |")


if __name__ == "__main__":
    main()
