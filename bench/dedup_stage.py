"""The whole `dedup` stage at its defaults on more than 1 GB: speed by step, memory, files, what it found.

One thread, from Parquet to Parquet, every removal verified by exact Jaccard (`dedup_run.py` says how it runs).
"""

from __future__ import annotations

import tempfile
from typing import Any

from bench import corpus, dedup_run, natural
from corpusmill.common.storage import Folder

DOCUMENTS, MEAN_BYTES = 400_000, 3_000


def measure(documents: int = DOCUMENTS, mean_bytes: int = MEAN_BYTES) -> dict[str, Any]:
    """What `dedup_run.run` gives, with `documents`, `megabytes` and `partitions` of the corpus."""
    with tempfile.TemporaryDirectory() as name:
        root = Folder(name)
        made = corpus.write(root / "in", documents, mean_bytes)
        found = dedup_run.run(root, made.partitions, made.sources)
    return {**found, "documents": documents, "megabytes": made.megabytes, "partitions": len(made.partitions)}


def main() -> None:
    """Print the tables."""
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    found = measure()
    size, documents = found["megabytes"], found["documents"]
    print(
        f"{documents:,} documents, {size:,.0f} MB in {found['partitions']} partitions. {corpus.description()}\n"
    )
    print("| step, defaults, one thread | MB/s per core | documents/s | CPU seconds |")
    print("|---|---:|---:|---:|")
    for name, seconds in found["seconds"].items():
        rates = f"{size / seconds:,.1f} | {documents / seconds:,.0f}" if seconds > 0.005 else "- | -"
        print(f"| {name} | {rates} | {seconds:.2f} |")
    counters = found["counters"]
    print(f"\nPeak memory {found['memory_peak']:,.0f} MiB ({found['memory_before']:,.0f} before the work).")
    print(f"Intermediate files {found['scratch_bytes'] / documents:,.0f} bytes a document.")
    print(f"Measured by the stage itself: {dedup_run.measured(found['quality'])}.")
    whole = (f"{name.replace('_', ' ')} {value:,}" for name, value in counters.items() if "/" not in name)
    print(f"Counters: {', '.join(whole)}.")


if __name__ == "__main__":
    main()
