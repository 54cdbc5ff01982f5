"""datatrove from JSON Lines to token files: language, Gopher, FineWeb and C4 filters, MinHash, PII, a given tokenizer.

python datatrove_whole_run.py INPUT OUTPUT LID_MODEL TOKENIZER

One task; all filters at their defaults, documents between the steps as JSON Lines, as its FineWeb example has it. The last step before
MinHash is the C4 filter, which rewrites texts. Prints {"kept": [id, ...], "gone": {step: [id, ...]}}.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.dedup.minhash import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
)
from datatrove.pipeline.formatters.pii import PIIFormatter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers import JsonlWriter
from fasttext.FastText import _FastText
from loguru import logger

STEPS: dict[str, list[str]] = {}


def seen(documents: Iterable[Document], step: str) -> Iterator[Document]:
    """Notes which documents a step leaves."""
    return _noted(documents, STEPS.setdefault(step, []))


def _noted(documents: Iterable[Document], ids: list[str]) -> Iterator[Document]:
    for document in documents:
        ids.append(str(document.metadata["name"]))
        yield document


def main() -> None:
    logger.remove()
    source, out, model, tokenizer = map(Path, sys.argv[1:])
    language = LanguageFilter(["en"])
    language.model._model = _FastText(str(model))
    filters = {
        "language": language, "gopher_repetition": GopherRepetitionFilter(), "gopher_quality": GopherQualityFilter(),
        "fineweb": FineWebQualityFilter(), "c4": C4QualityFilter(),
    }  # fmt: skip
    data = seen(JsonlReader(str(source)).run(), "read")
    for name, step in filters.items():
        data = seen(step.run(data), name)
    for _ in JsonlWriter(str(out / "filtered")).run(data):
        pass
    MinhashDedupSignature(str(out / "signatures")).run(JsonlReader(str(out / "filtered")).run())
    for bucket in range(14):
        MinhashDedupBuckets(str(out / "signatures"), str(out / "buckets")).run(None, bucket, 14)
    MinhashDedupCluster(str(out / "buckets"), str(out / "removals")).run(None, 0, 1)
    data = MinhashDedupFilter(str(out / "removals")).run(JsonlReader(str(out / "filtered")).run())
    data = PIIFormatter().run(seen(data, "dedup"))
    tokens = DocumentTokenizer(
        str(out / "tokens"), tokenizer_name_or_path=str(tokenizer), save_filename="corpus"
    )
    for _ in tokens.run(data) or ():
        pass
    steps = list(STEPS)
    gone = {step: sorted(set(STEPS[before]) - set(STEPS[step])) for before, step in itertools.pairwise(steps)}
    print(json.dumps({"kept": STEPS[steps[-1]], "gone": gone}))


if __name__ == "__main__":
    main()
