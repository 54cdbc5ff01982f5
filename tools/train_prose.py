"""Reproduce the shipped quality classifier: `python -m tools.train_prose DATA [OUT]`.

DATA holds the sets that the cards name, OUT (default: the folder of the shipped models in the checkout) gets the model, its card and its entry in `models.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.building import Made, build
from corpusmill.pipeline.filter.classifiers.labelled import Labelled, held_out
from corpusmill.pipeline.filter.classifiers.training import Training
from tools import labelled_sources, made_texts
from tools.labelled_sources import one_class

THRESHOLDS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
SEED = 20

QUALITY = Training(label="prose", pool="mean", epochs=5, learning_rate=0.2, features=40_000, seed=SEED)


def prose(data: Path) -> list[Labelled]:
    """Edited prose; `positive` is set by the caller's use."""
    return [
        one_class("speeches_sotu", labelled_sources.speeches(data), False, "public domain"),
        one_class("science_scitldr", labelled_sources.abstracts(data), False, "Apache-2.0"),
    ]


def _learnt(texts: Sequence[str], training: Training) -> list[str]:
    """Those that are not held out: nothing is made of the others."""
    out = held_out(texts, training.held_out, training.seed)
    return [text for text, apart in zip(texts, out, strict=True) if not apart]


def quality(data: Path, out: Path) -> Made:
    """`quality.ftz` and its card."""
    good = [
        Labelled(part.name, part.texts, [True] * len(part), part.licence, "edited prose")
        for part in [
            *prose(data),
            one_class("onestop_english", labelled_sources.graded_news(data), True, "CC-BY-SA 4.0"),
        ]
    ]
    some = _learnt([text for part in good for text in part.texts[:1500]], QUALITY)
    sms = labelled_sources.short_messages(data)
    bad = [
        one_class(
            "sms_spam", sms.texts, False, sms.licence, "spam and private messages alike: no edited prose"
        ),
        one_class("davidson_tweets", labelled_sources.tweets(data).texts[:4000], False, "MIT", "tweets"),
        one_class(
            "shuffled prose",
            made_texts.shuffled(SEED, some),
            False,
            "as its source",
            "words in another order",
        ),
        one_class("menus", made_texts.menus(SEED, 2500), False, "made by this project"),
        one_class("keywords", made_texts.stuffed(SEED, 2500), False, "made by this project"),
        one_class("machine output", made_texts.machine(SEED, 1500), False, "made by this project"),
    ]
    unseen = [
        labelled_sources.web_pages(data),
        one_class("biomedical abstracts", labelled_sources.medical_abstracts(data), True, "MIT"),
        one_class("encyclopedia (enwiki)", labelled_sources.encyclopedia(data), True, "CC-BY-SA 3.0"),
        one_class("books of the 19th century", labelled_sources.books(data), True, "public domain"),
        one_class("qa_stackexchange", labelled_sources.posts(data), True, "CC-BY-SA 3.0/4.0"),
        one_class("factbook", labelled_sources.factbook(data), True, "CC0"),
    ]
    return build(
        out / "quality.ftz", "Quality", "How much a text reads like edited English prose.", [*good, *bad],
        unseen, QUALITY, THRESHOLDS, threshold=0.8,
        limits=[
            "English only. Text that `filter` found to be in another language is not scored.",
            "It is weak: made examples stand for most of the bad text, so the held-out figures are far better"
            " than what real web pages give; the articles and the rest of real pages above are nearer to it.",
            "Edited is neither true nor useful. It judges style: dialogue, verse, code and notes score low.",
            "The recipe measures it and removes nothing by it unless told to.",
        ],
    )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Train the quality model; see `train_toxicity` for the other one."""
    data = Path(arguments[0])
    out = Path(arguments[1]) if len(arguments) > 1 else fasttext_model.MODELS
    result = quality(data, out)
    print(f"quality.ftz: {result.size:,} bytes, threshold {result.threshold:g}, card {result.card}")
    record(out, "quality.ftz", {"label": QUALITY.label, "languages": ["en"], "licence": "see quality.md"})


def record(out: Path, name: str, entry: dict[str, Any]) -> None:
    """Put a model of a folder, with its checksums, into the folder's `models.json`."""
    binary = (out / name).read_bytes()
    sums = {
        "bytes": len(binary), "xxh3": checksum(binary), "sha256": hashlib.sha256(binary).hexdigest(),
    }  # fmt: skip
    file = out / "models.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[name] = {**sums, **entry}
    file.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
