"""datatrove's MinHash deduplication at its defaults: 5 words, 14 x 8, spaCy's blank English tokenizer.

python datatrove_minhash.py signatures DOCUMENTS    prints {"seconds": CPU seconds of the first stage}
python datatrove_minhash.py clusters DOCUMENTS      prints {"clusters": [[id, ...], ...], "removed": [id, ...]}
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from pathlib import Path

from common import cpu_seconds, documents
from datatrove.data import Document
from datatrove.pipeline.dedup.minhash import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from loguru import logger


def signatures(docs: list[Document], folder: Path) -> float:
    """CPU seconds of the whole first stage; the tokenizer is loaded and used once before."""
    MinhashDedupSignature(str(folder / "warm")).run(docs[:3])
    step = MinhashDedupSignature(str(folder / "signatures"))
    step.word_tokenizer.word_tokenize("loaded")
    return cpu_seconds(lambda: step.run(docs))


def clusters(docs: list[Document], folder: Path) -> dict[str, list[list[str]] | list[str]]:
    """All four stages. The cluster ids that stage 3 may save beside its removals change neither."""
    MinhashDedupSignature(str(folder / "signatures")).run(docs)
    for bucket in range(14):
        MinhashDedupBuckets(str(folder / "signatures"), str(folder / "buckets")).run(None, bucket, 14)
    MinhashDedupCluster(str(folder / "buckets"), str(folder / "removals"), save_cluster_id=True).run(
        None, 0, 1
    )
    kept = {doc.id for doc in MinhashDedupFilter(str(folder / "removals")).run(docs)}
    found: dict[int, list[str]] = {}
    members = folder / "removals/000000.clusters"
    data = members.read_bytes() if members.exists() else b""
    for number, cluster in struct.iter_unpack("<2I", data):
        found.setdefault(cluster, []).append(docs[number].id)
    return {"clusters": list(found.values()), "removed": [doc.id for doc in docs if doc.id not in kept]}


def main() -> None:
    logger.remove()
    what, path = sys.argv[1:]
    docs = [Document(text=text, id=name) for name, text in zip(*documents(path), strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        answer = (
            {"seconds": signatures(docs, Path(folder))}
            if what == "signatures"
            else clusters(docs, Path(folder))
        )
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
