"""Deduplication: signatures beside datasketch with Python shingling, and the whole stage, per core.

Input: passages of 1 to 8 KB out of real books (../shared/data), with edited copies of each until there are
about 100 MB: a twentieth exact copies, others with 1 %, 5 % and 30 % of their words replaced. The stage runs
in a process of its own, one thread, from Parquet to Parquet with every pair verified; its memory is that
process's. Everything is run once on a little text before the clock starts (Numba compiles once).
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
BOOKS = ROOT.parent / "shared" / "data" / "natural" / "books_gutenberg"
MEGABYTES = 100
PARTITIONS = 4
NUM_PERM, NGRAM = 112, 5
PEER_MEGABYTES = 4
EDITS = ((0.0, 0.05), (0.01, 0.15), (0.05, 0.2), (0.3, 0.6))  # share of words replaced, share of the copies


def passages() -> Iterator[str]:
    """Texts without end: first the books in passages, then copies of them with seeded edits."""
    generator = np.random.default_rng(1)
    found = []
    for path in sorted(BOOKS.glob("*.md")):
        words = np.array(path.read_text(encoding="utf-8").split())
        cuts = np.cumsum(generator.integers(180, 1400, len(words) // 180))
        found += [part for part in np.split(words, cuts[cuts < len(words)]) if len(part) > 20]
    vocabulary = np.concatenate(found[:200])
    yield from (" ".join(words) for words in found)
    shares, odds = zip(*EDITS, strict=True)
    while True:
        for words, share in zip(found, generator.choice(shares, len(found), p=odds), strict=True):
            changed = np.where(
                generator.random(len(words)) < share, generator.choice(vocabulary, len(words)), words
            )
            yield " ".join(changed)


def corpus(megabytes: float) -> list[str]:
    """Passages of that many megabytes in all."""
    texts, size = [], 0
    for text in passages():
        texts.append(text)
        size += len(text.encode())
        if size >= megabytes * 1e6:
            return texts
    raise AssertionError("passages never end")


class Serial:
    """Tasks in this process; CPU seconds by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def map(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Any]:
        start = time.process_time()
        results = [function(item) for item in items]
        self.seconds[label] = self.seconds.get(label, 0) + time.process_time() - start
        return results


def publish(texts: list[str], folder: Any) -> list[Any]:
    """The texts as published partitions."""
    from pipeline.publish import publish_table
    from pipeline.stage import Partition
    from schemas.documents import DOCUMENTS
    from schemas.ids import doc_id, text_hash

    found = []
    for index, rows in enumerate(np.array_split(np.arange(len(texts)), PARTITIONS)):
        columns: dict[str, Any] = {
            name: pa.nulls(len(rows), DOCUMENTS.field(name).type) for name in DOCUMENTS.names
        }
        part = [texts[row] for row in rows]
        columns |= {
            "doc_id": [doc_id("books", str(row)) for row in rows],
            "source": ["books"] * len(rows),
            "locator": [str(row) for row in rows],
            "text": part,
            "text_hash": [text_hash(text) for text in part],
        }
        file = publish_table(folder, f"documents/{index:05d}.parquet", pa.table(columns, DOCUMENTS))
        size = sum(len(text.encode()) for text in part)
        found.append(Partition(f"{index:05d}", folder, len(rows), size, file.xxh3))
    return found


def stage(folder: str, parts: str) -> None:
    """Run the stage on published partitions, in a child process; prints its figures as JSON."""
    from pipeline.dedup.stage import Dedup
    from pipeline.publish import publish_table
    from pipeline.stage import Context, Partition
    from schemas.recipe import Recipe
    from schemas.storage import Folder

    recipe = Recipe.model_validate(
        {"name": "bench", "sources": {"books": {"paths": ["-"]}}, "dedup": {"max_source_loss": 1.0}}
    )
    dedup = Dedup(recipe)
    root = Folder(folder)

    def run(partitions: list[Partition], out: Any) -> tuple[dict[str, float], dict[str, int]]:
        serial = Serial()
        start = time.process_time()
        _, counters = dedup.prepare(Context(recipe, root, out, partitions, {}, serial))
        prepared = time.process_time()
        for part in partitions:
            outcome = dedup.transform(out, part.name)(part.read())
            publish_table(out, f"documents/{part.name}.parquet", outcome.kept)
            publish_table(out, f"decisions/{part.name}.parquet", outcome.decisions)
        end = time.process_time()
        steps = {label.removeprefix("dedup "): seconds for label, seconds in serial.seconds.items()}
        steps["clusters and the rest"] = prepared - start - sum(steps.values())
        return {**steps, "removal, Parquet to Parquet": end - prepared, "whole stage": end - start}, counters

    run([Partition(**part, folder=root / "little") for part in json.loads(parts)["little"]], root / "warm")
    memory = _memory()
    seconds, counters = run(
        [Partition(**part, folder=root / "in") for part in json.loads(parts)["in"]], root / "out"
    )
    work = sum(entry.size for entry in (root / "out/scratch").list())
    quality = json.loads((root / "out/quality.json").read())
    print(json.dumps({
        "seconds": seconds, "counters": counters, "memory_before": memory, "memory_peak": _memory(),
        "work_bytes": work, "measured": quality["measured"]["recall"],
    }))  # fmt: skip


def measure() -> dict[str, Any]:
    """CPU seconds of signatures (ours and datasketch's) and of the stage's steps; its memory and findings."""
    from pipeline.dedup.kernels.shingles import Shingle, permutations, signatures
    from schemas.storage import Folder

    texts = corpus(MEGABYTES)
    size = sum(len(text.encode()) for text in texts)
    array = pa.array(texts, pa.large_string())
    shingle, hashes = Shingle(NGRAM), permutations(NUM_PERM, 1)
    signatures(array.slice(0, 10), shingle, hashes)
    ours = _seconds(lambda: signatures(array, shingle, hashes))
    little = corpus(PEER_MEGABYTES)
    some = pa.array(little, pa.large_string())
    result: dict[str, Any] = {
        "megabytes": size / 1e6,
        "documents": len(texts),
        "peer_megabytes": sum(len(text.encode()) for text in little) / 1e6,
        "peer_documents": len(little),
        "signatures": ours,
        "signatures_little": _seconds(lambda: signatures(some, shingle, hashes)),
        "datasketch": _seconds(lambda: [datasketch_signature(text) for text in little]),
    }
    with tempfile.TemporaryDirectory() as name:
        root = Folder(name)
        parts = {
            where: [
                {"name": p.name, "rows": p.rows, "text_bytes": p.text_bytes, "xxh3": p.xxh3}
                for p in publish(some_texts, root / where)
            ]
            for where, some_texts in (("in", texts), ("little", little[:200] + little[:50]))
        }
        command = [sys.executable, "-c", "import sys; from bench.dedup import stage; stage(*sys.argv[1:])"]
        child = subprocess.run(
            [*command, name, json.dumps(parts)], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True
        )
    return {**result, **json.loads(child.stdout)}


def datasketch_signature(text: str) -> Any:
    """What one writes with datasketch: a regular expression for words, joined shingles, one batch."""
    import xxhash
    from datasketch import MinHash

    words = re.findall(r"\w+", text.lower())
    grams = (
        {" ".join(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))} if words else set()
    )
    sketch = MinHash(num_perm=NUM_PERM, seed=1, scheme="affine32", hashfunc=xxhash.xxh32_intdigest)
    sketch.update_batch([gram.encode() for gram in grams])
    return sketch.hashvalues


def main() -> None:
    """Print the tables."""
    if not BOOKS.is_dir():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    found = measure()
    size, docs, little = found["megabytes"], found["documents"], found["peer_megabytes"]
    print(f"{docs:,} documents, {size:.1f} MB of book text with edited copies, one thread.\n")
    print(
        f"| signatures: {NUM_PERM} permutations, {NGRAM} words, normalisation included | MB | MB/s per core |"
    )
    print("|---|---|---|")
    print(f"| CorpusMill | {size:.0f} | {size / found['signatures']:.1f} |")
    print(f"| CorpusMill | {little:.0f} | {little / found['signatures_little']:.1f} |")
    print(f"| datasketch, shingles in Python | {little:.0f} | {little / found['datasketch']:.2f} |\n")
    print("| stage, defaults | MB/s per core | documents/s | CPU seconds |\n|---|---|---|---|")
    for name, seconds in found["seconds"].items():
        rates = f"{size / seconds:.1f} | {docs / seconds:,.0f}" if seconds > 0.005 else "- | -"
        print(f"| {name} | {rates} | {seconds:.2f} |")
    counters, recall = found["counters"], found["measured"]
    print(
        f"\n{counters['candidates']:,} candidate pairs, {counters['verified']:,} verified; removed: "
        f"{counters['exact_removed']:,} exact copies, {counters['near_removed']:,} near-copies. Recall at "
        f"0.8 and above, measured on {recall['of']:,} pairs: {recall['value']:.4f} "
        f"({recall['low']:.4f} to {recall['high']:.4f}). Peak memory {found['memory_peak']:.0f} MiB "
        f"({found['memory_before']:.0f} before the work); intermediate files "
        f"{found['work_bytes'] / docs:,.0f} bytes a document."
    )


def _seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _memory() -> float:
    """Peak memory of this process, MiB. Its `ru_maxrss` would count what the parent had when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
