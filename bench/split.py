"""What it costs to measure how near validation is to train: MB/s per core of shingle sets and of their comparison."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.natural import available, sources

PIECE = 3_000  # characters: one document
SHARES = (0.02, 0.5)  # of the documents, held out
TEMPLATE, DRAWN, OWN = (
    375,
    0.8,
    100,
)  # shingles of the template, share of them in a document, shingles of its own
HELD_OUT, COMPARED = 10_000, 500  # documents of one template


def _sample(bounds: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> pa.Table:
    from corpusmill.pipeline.split.index import SAMPLE

    count = len(bounds) - 1
    lists = pa.LargeListArray.from_arrays(
        pa.array(bounds), pa.array(hashes), type=SAMPLE.field("shingles").type
    )
    ids = pa.array([bytes(16)] * count, pa.binary(16))
    return pa.table([ids, pa.array(["s"] * count), pa.array([0] * count), lists], schema=SAMPLE)


def books(share: float) -> tuple[float, float, float, float]:
    """(MB of train, CPU seconds of its shingle sets, of comparing them, bytes of the index per distinct shingle)."""
    from corpusmill.pipeline.split.index import build, compare, empty_best
    from corpusmill.pipeline.split.similarity import views
    from corpusmill.pipeline.text.shingling import Shingling
    from corpusmill.schemas.dedup import DedupParams

    text = "".join(sources()["books"]())
    docs = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
    order = np.random.default_rng(0).permutation(len(docs))
    held = np.sort(order[: int(len(docs) * share)])
    train = np.sort(order[int(len(docs) * share) :])
    array, shingling = pa.array(docs, pa.large_string()), Shingling(DedupParams(), 0)
    index = build(_sample(*shingling.sets(array, held)))
    best, row = empty_best(len(held))
    compare(*shingling.sets(array, train[:10]), train[:10], tuple(index), best, row)  # compiled
    sizes = np.array([len(doc.encode()) for doc in docs])
    sets = compared = 0.0
    for part in views(sizes, train):
        start = time.process_time()
        found = shingling.sets(array, part)
        middle = time.process_time()
        compare(*found, part, tuple(index), best, row)
        sets, compared = sets + middle - start, compared + time.process_time() - middle
    size = sum(part.nbytes for part in index if isinstance(part, np.ndarray)) / len(index.keys)
    return float(sizes[train].sum()) / 1e6, sets, compared, size


def template() -> float:
    """CPU milliseconds a train document where all documents, on both sides, are made from one template."""
    from corpusmill.pipeline.split.index import build, compare, empty_best

    draw = np.random.default_rng(0)
    shared = draw.integers(0, 2**63, TEMPLATE).astype(np.uint64) * np.uint64(2)

    def made(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        own = draw.integers(0, 2**63, (count, OWN)).astype(np.uint64) * np.uint64(2) + np.uint64(1)
        sets = [np.unique(np.r_[shared[draw.random(TEMPLATE) < DRAWN], row]) for row in own]
        return np.r_[0, np.cumsum([len(one) for one in sets])].astype(np.int64), np.concatenate(sets)

    index = build(_sample(*made(HELD_OUT)))
    bounds, hashes = made(COMPARED)
    best, row = empty_best(HELD_OUT)
    compare(bounds[:2], hashes, np.arange(1), tuple(index), best, row)
    start = time.process_time()
    compare(bounds, hashes, np.arange(COMPARED), tuple(index), best, row)
    return 1000 * (time.process_time() - start) / COMPARED


def main() -> None:
    """Print a Markdown table."""
    if not available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    print("Highest exact Jaccard of each held-out document with any of train; books in pieces of 3 kB.\n")
    print("| held out | train, MB | shingle sets, MB/s per core | comparison | both |\n|---|---|---|---|---|")
    for share in SHARES:
        size, sets, compared, memory = books(share)
        print(
            f"| {share:.0%} | {size:.1f} | {size / sets:.0f} | {size / compared:.0f} | {size / (sets + compared):.0f} |"
        )
    print(f"\nThe index holds {memory:.0f} bytes per distinct shingle of the held-out documents.")
    print(
        f"The worst case, {HELD_OUT:,} held-out documents of one template: {template():.2f} ms a train document."
    )


if __name__ == "__main__":
    main()
