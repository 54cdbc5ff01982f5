"""How similar the two sides of the split are: `similarity.json`, the figures that the report draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.document_hash import purpose_seed
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.split.nearest_documents import MEASURES, Draw, Nearest, draw, gather, nearest
from corpusmill.pipeline.text.word_rule import RULE
from corpusmill.schemas.manifest import PublishedFile, hash_json
from corpusmill.schemas.split import MIB, SplitParams

KIND = "corpusmill-similarity-v1"
BINS = 20
QUANTILES = (0.5, 0.9, 0.99)
WORST = 10  # pairs named
DIGITS = 6
F64 = npt.NDArray[np.float64]


def similarity(
    context: Context, params: SplitParams, validation: pa.Table, groups: PublishedFile, version: str
) -> dict[str, Any] | None:
    """Compare the sample of validation with every document of train; None where there is no validation, or
    `similarity_mb` is 0. `validation` are its groups, `measure.MEMBERS`; `groups` the file that says what is not train.

    Shingles are those of `dedup` in the recipe, its defaults where it does not run.
    """
    if params.similarity_mb == 0 or len(validation) == 0:
        return None
    dedup = context.recipe.dedup
    seed = purpose_seed(context.recipe.seed, "similarity")
    taken = draw(validation, round(params.similarity_mb * MIB), seed)
    work = context.folder / "scratch/similarity"
    sample, file = gather(context, Draw(taken, dedup, work))
    shingles = [dedup.shingle, dedup.ngram, dedup.preset]
    task = Nearest(context.folder, work, file, dedup, hash_json([version, RULE, shingles, groups.xxh3]))
    found = nearest(context, task, len(sample))
    return summary(context, validation, sample, found)


def summary(
    context: Context, validation: pa.Table, sample: pa.Table, found: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The figures, by source and of all."""
    dedup = context.recipe.dedup
    sizes = pc.list_value_length(sample["shingles"]).to_numpy()
    source = np.array(sample["source"].to_pylist(), dtype=object)
    names = pc.unique(validation["source"]).sort().to_pylist()
    everything = np.ones(len(sample), bool)
    docs = {name: _total(validation, "docs", name) for name in names}
    facts: dict[str, Any] = {
        "kind": KIND,
        "shingle": {"kind": dedup.shingle, "ngram": dedup.ngram, "preset": dedup.preset},
        "threshold": dedup.similarity,
        "deduplicated": "dedup" in context.recipe.stages and dedup.minhash,
        "validation_documents": sum(docs.values()),
        "compared": len(sample),
        "compared_bytes": int(pc.sum(sample["bytes"]).as_py() or 0),
        "without_words": int((sizes == 0).sum()),
        **_figures(found, everything, dedup.similarity),
        "sources": {
            name: {
                "validation_documents": docs[name],
                "compared": int((source == name).sum()),
                **_figures(found, source == name, dedup.similarity),
                "worst": _worst(sample, found, source == name, 1),
            }
            for name in names
        },
        "histogram": {
            "from": [n / BINS for n in range(BINS)],
            **{name: _histogram(found[name]["value"]) for name in MEASURES},
        },
        "worst": _worst(sample, found, everything, WORST),
    }
    return {**facts, "sentence": sentence(facts)}


def _total(rows: pa.Table, column: str, source: str) -> int:
    return int(pc.sum(rows[column].filter(pc.equal(rows["source"], source))).as_py() or 0)


def _figures(
    found: dict[str, dict[str, Any]], mine: npt.NDArray[np.bool_], threshold: float
) -> dict[str, Any]:
    facts = {}
    for name in MEASURES:
        values = np.sort(found[name]["value"][mine])
        facts[name] = {
            "max": _rounded(values[-1]) if len(values) else 0.0,
            "quantiles": {str(q): _quantile(values, q) for q in QUANTILES},
            "above": int((values >= threshold).sum()),
        }
    return facts


def _quantile(values: F64, q: float) -> float:
    """The least of the sorted values that so great a share does not exceed."""
    return _rounded(values[max(0, int(np.ceil(q * len(values))) - 1)]) if len(values) else 0.0


def _rounded(value: float) -> float:
    return round(float(value), DIGITS)


def _histogram(values: F64) -> list[int]:
    """Documents by similarity in steps of 1 / BINS; 1 is in the last."""
    places = np.minimum((values * BINS + 1e-9).astype(np.int64), BINS - 1)
    counts: list[int] = np.bincount(places, minlength=BINS).tolist()
    return counts


def _worst(
    sample: pa.Table, found: dict[str, dict[str, Any]], mine: npt.NDArray[np.bool_], count: int
) -> list[dict[str, Any]]:
    """The pairs with the highest Jaccard similarity, by that and by id."""
    best, inside = found["jaccard"], found["inside"]
    rows = np.flatnonzero(mine & (best["value"] > 0))
    rows = rows[np.lexsort((rows, -best["value"][rows]))][:count]
    return [
        {
            "jaccard": _rounded(best["value"][row]),
            "validation": sample["doc_id"][row].as_py().hex(),
            "validation_source": sample["source"][row].as_py(),
            "train": best["doc_id"][row].hex(),
            "train_source": best["source"][row],
            "inside": _rounded(inside["value"][row]),
        }
        for row in rows.tolist()
    ]


def sentence(facts: dict[str, Any]) -> str:
    """What was found, in words."""
    total, compared = facts["validation_documents"], facts["compared"]
    if not compared:
        return f"None of the {total:,} validation documents fits into similarity_mb: nothing was compared."
    which = "all" if compared == total else f"{compared:,}, drawn by a hash,"
    unit = {"word": "word", "char": "character"}[facts["shingle"]["kind"]]
    jaccard, threshold = facts["jaccard"], facts["threshold"]
    most, q = ("99 %", "0.99") if compared >= 100 else ("half of them", "0.5")
    start = (
        f"Compared {which} of the {total:,} validation documents with every document of train by the exact Jaccard"
        f" similarity of their {unit} {facts['shingle']['ngram']}-grams: the highest is {jaccard['max']:.3f},"
        f" {most} have at most {jaccard['quantiles'][q]:.3f}; "
    )
    at = f"{threshold:g}, at which deduplication removes" if facts["deduplicated"] else f"{threshold:g}"
    if not jaccard["above"]:
        return start + f"none reaches {at}."
    return start + f"{jaccard['above']:,} reach{'es' if jaccard['above'] == 1 else ''} {at}."
