"""The shipped toxicity model by document, by worst sentence and by the share of toxic sentences.

Planted insults of the quick start's corpus and prose that the model was not trained on, and the harmless phrases of a set that it
was: what a model without that set makes of them is in its card (`pipeline/filter/models/toxicity.md`).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.natural import DATA

PLANTED = Path(__file__).resolve().parent.parent / "examples/corpus/sources/planted/planted.jsonl.gz"
STEPS = {
    "toxicity.score": (0.8, 0.95),
    "toxicity.worst_sentence": (0.4, 0.95),
    "toxicity.sentences_ratio": (0.2, 0.25, 0.4),
}


def texts() -> dict[str, list[str]]:
    """Kind -> texts: the insults first, then what should not be found."""
    from tools import labelled_sources

    with gzip.open(PLANTED, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    phrases = labelled_sources.identity_templates(DATA)
    return {
        "planted insults": [row["text"] for row in rows if row["planted"]["kind"] == "toxic"],
        "harmless phrases with identity terms": [
            text for text, bad in zip(phrases.texts, phrases.positive, strict=True) if not bad
        ],
        "news": labelled_sources.graded_news(DATA),
        "encyclopedia": labelled_sources.encyclopedia(DATA),
        "biomedical abstracts": labelled_sources.medical_abstracts(DATA),
        "factbook": labelled_sources.factbook(DATA),
        "pieces of books of the 19th century": labelled_sources.books(DATA),
    }


def main() -> None:
    """Print the share of texts above each threshold."""
    if not DATA.is_dir():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    from corpusmill.pipeline.filter.classifiers import fasttext_model
    from corpusmill.pipeline.filter.toxicity.model import load
    from corpusmill.pipeline.filter.toxicity.scores import measured

    file = fasttext_model.shipped(fasttext_model.SHIPPED["toxicity"])
    model = load(file.path, file.xxh3)
    heads = [f"{name.removeprefix('toxicity.')} > {step}" for name, steps in STEPS.items() for step in steps]
    print("Share of texts above each threshold; all but the first line should be 0.\n")
    print("| text | texts | " + " | ".join(heads) + " |\n|---|---|" + "---|" * len(heads))
    for kind, own in texts().items():
        found = measured(pa.array(own, pa.large_string()), model)
        cells = [f"{np.mean(found[name] > step):.1%}" for name, steps in STEPS.items() for step in steps]
        print(f"| {kind} | {len(own):,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
