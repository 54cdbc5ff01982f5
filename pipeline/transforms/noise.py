"""`noise`: a share of the documents with typing errors and the like, so that a model meets them in training."""

from __future__ import annotations

import pyarrow as pa

from corpusmill.common.perturb import parse
from corpusmill.common.perturb.draw import drawn_from
from corpusmill.pipeline.engine.custom import stage


@stage(version="1")
def noise(docs: pa.Table, perturb: str, share: float = 1.0, seed: int = 0) -> pa.Table:
    """Documents of which about `share` are perturbed in place; none is removed, and none is doubled.

    `perturb`: KIND:RATE or KIND:RATE:FILE (`corpusmill.common.perturb`, docs/augment.md). Which documents and what of them depends on
    the seed and the document's id alone, so that any partitioning gives the same, and copies in other sources get other noise. Raises
    `UserError` for a kind or rate that there is not.
    """
    by = parse(perturb, "noise.perturb")
    texts = docs["text"].to_pylist()
    for row, name in enumerate(docs["doc_id"].to_pylist()):
        if drawn_from(seed, f"{by.kind} share", name.hex()).random() < share:
            texts[row] = by.apply(texts[row], name.hex(), seed)
    return docs.set_column(docs.column_names.index("text"), "text", pa.array(texts, pa.large_string()))
