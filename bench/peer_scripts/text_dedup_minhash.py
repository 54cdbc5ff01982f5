"""text-dedup's `minhash` command at its defaults: 5 words, 250 permutations, threshold 0.7, SHA-1.

    python text_dedup_minhash.py signatures DOCUMENTS    prints {"seconds": CPU seconds of its fingerprints}
    python text_dedup_minhash.py clusters DOCUMENTS      prints {"clusters": [[id, ...], ...], "removed": [id, ...]}

The command is called as its own command line calls it; its clusters are read from the union-find that it
leaves in the module, what it removed from the data set that it writes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import datasets
import numpy as np
from common import cpu_seconds, documents
from text_dedup import minhash
from text_dedup.utils import MinHashArgs, optimal_param, sha1_hash


def clusters(path: str, folder: Path) -> dict[str, list[list[str]] | list[str]]:
    """The whole command."""
    options = [
        "--path", "json", "--data_files", path, "--split", "train", "--column", "text",
        "--cache_dir", str(folder / "cache"), "--output", str(folder / "out"),
    ]  # fmt: skip
    minhash.main.main(options, standalone_mode=False)
    ids, _ = documents(path)
    kept = set(datasets.load_from_disk(str(folder / "out"))["id"])
    found: dict[int, list[str]] = {}
    for number in list(minhash.uf.parent):
        found.setdefault(minhash.uf.find(number), []).append(ids[number])
    return {
        "clusters": [members for members in found.values() if len(members) > 1],
        "removed": [name for name in ids if name not in kept],
    }


def signatures(texts: list[str]) -> float:
    """CPU seconds of the function that the command maps over the documents."""
    args = MinHashArgs()
    bands, rows = optimal_param(args.threshold, args.num_perm, 0.5, 0.5)
    top, prime = np.uint32((1 << 32) - 1), np.uint64((1 << 61) - 1)
    permutations = (
        minhash.RNG.randint(1, prime, size=(args.num_perm,), dtype=np.uint64),
        minhash.RNG.randint(0, prime, size=(args.num_perm,), dtype=np.uint64),
    )

    def sign(some: list[str]) -> None:
        for number, text in enumerate(some):
            minhash.embed_func(
                text, number, num_perm=args.num_perm, ngram_size=args.ngram, min_length=args.min_length,
                hashranges=[(i * rows, (i + 1) * rows) for i in range(bands)], permutations=permutations,
                hash_func=lambda data: sha1_hash(data, d=32), dtype=np.uint64, max_hash=top, modulo_prime=prime,
            )  # fmt: skip

    sign(texts[:3])
    return cpu_seconds(lambda: sign(texts))


def main() -> None:
    what, path = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if what == "signatures":
            answer: object = {"seconds": signatures(documents(path)[1])}
        else:
            answer = clusters(path, Path(folder))
    print()  # what the command left on its line
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
