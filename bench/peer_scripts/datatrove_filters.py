"""datatrove's Gopher quality, Gopher repetition, C4 and FineWeb quality filters at their defaults.

python datatrove_filters.py DOCUMENTS    prints {"seconds": {filter: CPU seconds}, "removed": {filter: documents}}

Each filter sees every document on its own, as if none had removed it before; spaCy's blank English tokenizer is
loaded and used once before.
"""

from __future__ import annotations

import json
import sys

from common import cpu_seconds, documents
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from loguru import logger


def main() -> None:
    logger.remove()
    ids, texts = documents(sys.argv[1])
    filters = [GopherQualityFilter(), GopherRepetitionFilter(), C4QualityFilter(), FineWebQualityFilter()]
    seconds, removed = {}, {}
    for one in filters:
        name = type(one).__name__
        # Fresh documents: the C4 filter rewrites the text of those that it sees.
        docs = [Document(text=text, id=doc) for doc, text in zip(ids, texts, strict=True)]
        one.filter(Document(text="The tokenizer is loaded now. It has been used once.", id="first"))
        kept = []
        seconds[name] = cpu_seconds(lambda one=one, docs=docs, kept=kept: kept.extend(_kept(one, docs)))
        removed[name] = len(docs) - sum(kept)
    print(json.dumps({"seconds": seconds, "removed": removed}))


def _kept(one: object, docs: list[Document]) -> list[bool]:
    return [one.filter(doc) is True for doc in docs]  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
