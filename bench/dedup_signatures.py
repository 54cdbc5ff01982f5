"""Signatures: ours beside datasketch, datatrove, rensa and text-dedup, and beside what the memory allows.

All read the same documents (real text, about 3 kB each), already in memory; normalisation and shingling are
part of every figure, start-up is of none. CPU seconds, so that a core is a core; each tool once a round, ours
twice, and the median of the rounds. datatrove and text-dedup run at their defaults (112 and 250
permutations), the others with 128; all take 5 words. datasketch and rensa need their shingles made in
Python: a regular expression for words, joined with spaces. text-dedup is its signature function alone,
without the data set that it reads and writes.

The limits are Numba kernels over the same bytes: `counting spaces` reads them once and vectorises, the most
that any kernel can do; `a byte at a time` walks them and mixes each into a hash, the least that a word hash
needs; ours without permutations is folding, words and shingles alone.

The presets with units of their own, on texts as they are for, with the permutations that their bands use: Python's standard
library, and one-line summaries of papers.
"""

from __future__ import annotations

import statistics
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from bench import corpus, natural, peers

DOCUMENTS, SLICE, MEAN_BYTES = 32_000, 1_300, 3_000
NUM_PERM, NGRAM, ROUNDS = 128, 5, 3
PEERS = (
    (peers.DATASKETCH, (str(NUM_PERM), str(NGRAM)), ()),
    (peers.RENSA, (str(NUM_PERM), str(NGRAM)), ()),
    (peers.DATATROVE, (), ("signatures",)),
    (peers.TEXT_DEDUP, (), ("signatures",)),
)
OURS = "CorpusMill"


@njit(cache=True, nogil=True)
def _spaces(data: Any) -> int:
    """How many spaces: a loop without a dependency, which the compiler turns into SIMD."""
    found = 0
    for byte in data:
        found += byte == 0x20
    return found


@njit(cache=True, nogil=True)
def _walk(data: Any) -> Any:
    """An FNV-1a hash of each word, added up: a step for every byte, each needing the one before."""
    total = np.uint64(0)
    word = np.uint64(0xCBF29CE484222325)
    for byte in data:
        if byte > 0x20:
            word = (word ^ np.uint64(byte)) * np.uint64(0x100000001B3)
        else:
            total += word
            word = np.uint64(0xCBF29CE484222325)
    return total


def measure() -> dict[str, Any]:
    """`rates` (tool -> MB/s on the slice, the median), `alone` (name -> MB/s on the whole), `missing` peers."""
    from corpusmill.pipeline.text.shingling import Shingling
    from corpusmill.schemas.dedup import DedupParams

    whole = corpus.texts(corpus.plan(DOCUMENTS, MEAN_BYTES))
    some = pa.concat_arrays([whole.slice(0, SLICE)])
    params = DedupParams(num_perm=NUM_PERM, ngram=NGRAM)
    full, none = Shingling(params, NUM_PERM), Shingling(params, 0)
    data = np.frombuffer(whole.buffers()[2], np.uint8)

    def sign(shingling: Shingling, text: pa.Array) -> Callable[[], Any]:
        rows = np.arange(len(text), dtype=np.int64)
        return lambda: shingling.sign(text, rows)

    alone = {
        "counting spaces": lambda: _spaces(data),
        "a byte at a time": lambda: _walk(data),
        f"{OURS}, without permutations": sign(none, whole),
        f"{OURS}, {NUM_PERM} permutations": sign(full, whole),
    }
    for function in alone.values():
        function()
    rates: dict[str, list[float]] = {OURS: []}
    limits: dict[str, list[float]] = {name: [] for name in alone}
    missing: dict[str, str] = {}
    size = _bytes(some)
    with tempfile.TemporaryDirectory() as name:
        file = peers.write_documents(Path(name) / "documents.jsonl", map(str, range(SLICE)), some)
        for _ in range(ROUNDS):
            for what, function in alone.items():
                limits[what].append(len(data) / 1e6 / _seconds(function))
            rates[OURS].append(size / _seconds(sign(full, some)))
            for peer, after, before in PEERS:
                if peer.label in missing:
                    continue
                try:
                    answer = peers.ask(peer, *before, file, *after)
                except peers.NotMeasured as error:
                    missing[peer.label] = str(error)
                    continue
                rates.setdefault(peer.label, []).append(size / answer["seconds"])
                if "hashing" in answer:
                    label = f"{peer.label}, shingles already made"
                    rates.setdefault(label, []).append(size / answer["hashing"])
            rates[OURS].append(size / _seconds(sign(full, some)))
    return {
        "rates": {name: statistics.median(found) for name, found in rates.items()},
        "alone": {name: statistics.median(found) for name, found in limits.items()},
        "missing": missing,
        "megabytes": len(data) / 1e6,
        "slice": size,
    }


def presets() -> dict[str, tuple[float, float]]:
    """Preset -> (MB, MB/s of one core, the median)."""
    from corpusmill.pipeline.dedup.banding import banding
    from corpusmill.pipeline.text.shingling import Shingling
    from corpusmill.schemas.dedup import DedupParams

    library = Path(sysconfig.get_path("stdlib"))
    files = [*sorted(library.glob("*.py")), *sorted(library.glob("[a-z]*/*.py"))]
    papers = natural.rows(natural.DATA / "natural/science_scitldr")
    texts = {
        "code": [
            path.read_text("utf-8", errors="replace") for path in files if "site-packages" not in str(path)
        ],
        "short": [row["tldr"][0] for row in papers if row["tldr"]] * 8,
    }
    found = {}
    for preset, some in texts.items():
        params = DedupParams.model_validate({"preset": preset})
        shingling = Shingling(params, banding(params).bands * banding(params).rows)
        text, rows = pa.array(some, pa.large_string()), np.arange(len(some), dtype=np.int64)
        shingling.sign(text, rows[:10])
        size = _bytes(text)
        rates = [size / _seconds(lambda: shingling.sign(text, rows)) for _ in range(ROUNDS)]  # noqa: B023
        found[preset] = size, statistics.median(rates)
    return found


def main() -> None:
    """Print the tables."""
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    found = measure()
    print(" ".join((__doc__ or "").split("\n\n")[1].split()) + "\n")
    print(
        f"| {found['slice']:.1f} MB, {SLICE:,} documents, 5-word shingles | MB/s per core | CorpusMill is |"
    )
    print("|---|---:|---:|")
    ours = found["rates"][OURS]
    for name, rate in found["rates"].items():
        print(f"| {name} | {rate:.2f} | {'' if name == OURS else f'{ours / rate:,.1f} times as fast'} |")
    for name, reason in found["missing"].items():
        print(f"| {name} | not measured: {reason} | |")
    print("\n" + " ".join((__doc__ or "").split("\n\n")[2].split()) + "\n")
    print(f"| {found['megabytes']:.0f} MB | MB/s per core | share of the walk |\n|---|---:|---:|")
    walk = found["alone"]["a byte at a time"]
    for name, rate in found["alone"].items():
        print(f"| {name} | {rate:,.0f} | {rate / walk:.0%} |")
    print("\n" + " ".join((__doc__ or "").split("\n\n")[3].split()) + "\n")
    print("| preset | MB | MB/s per core |\n|---|---:|---:|")
    for name, (size, rate) in presets().items():
        print(f"| {name} | {size:.1f} | {rate:.0f} |")


def _bytes(text: pa.Array) -> float:
    """Megabytes of UTF-8."""
    offsets = np.frombuffer(text.buffers()[1], np.int64, len(text) + 1, text.offset * 8)
    return float(offsets[-1] - offsets[0]) / 1e6


def _seconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


if __name__ == "__main__":
    main()
