"""datatrove's NGramsDecontFilter at its defaults but for the n-gram length, spaCy's blank English tokenizer.

python datatrove_decontaminate.py DOCUMENTS ITEMS NGRAM    prints {"seconds": CPU seconds of the filter, "removed":
[id, ...], "ngrams": hashes in the index}. ITEMS are JSON lines with `query` and `label`; every n-gram of either, and of
both together, is looked for. The indexer class needs lighteval's registry: only its own hashing is used here.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import cpu_seconds, documents
from datatrove.data import Document
from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer
from datatrove.utils.hashing import create_hash_func
from datatrove.utils.word_tokenizers import load_word_tokenizer
from loguru import logger


def main() -> None:
    logger.remove()
    path, items, ngram = sys.argv[1:]
    config = NGramsDecontConfig(n_grams=int(ngram), find_query_ngrams=True)
    indexer = object.__new__(NGramsDecontIndexer)  # its own way of being made asks for lighteval
    indexer.config, indexer.tokenizer = config, load_word_tokenizer("eng")
    indexer.hash_func = create_hash_func(config.hash_config)
    hashes: set[int] = set()
    for line in Path(items).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        hashes.update(indexer.compute_hashes(row["label"], row["query"]))
    docs = [Document(text=text, id=name) for name, text in zip(*documents(path), strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        np.array(sorted(hashes), dtype=config.hash_config.np_descr).tofile(
            Path(folder) / "evals.index.hashes"
        )
        step = NGramsDecontFilter(folder, config)
        step.filter(Document(text="The tokenizer is loaded and used once before. " * 5, id="warm"))
        removed: list[str] = []

        def work() -> None:
            removed.extend(doc.id for doc in docs if step.filter(doc) is not True)

        seconds = cpu_seconds(work)
    print(json.dumps({"seconds": seconds, "removed": removed, "ngrams": len(hashes)}))


if __name__ == "__main__":
    main()
