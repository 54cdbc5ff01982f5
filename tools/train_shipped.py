"""Reproduce the shipped classifiers: `python -m tools.train_shipped DATA [OUT]`.

DATA holds the sets that the cards name, OUT (default: the folder of the shipped models in the checkout) gets models, cards and `models.json`.
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
from corpusmill.pipeline.filter.classifiers.predictor import load_bytes
from corpusmill.pipeline.filter.classifiers.training import Training, evaluate_classifier, train_classifier
from tools import labelled_sources, language_card, made_texts
from tools.labelled_sources import one_class

THRESHOLDS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
SEED = 20

TOXICITY = Training(label="toxic", pool="worst", epochs=8, learning_rate=0.3, features=40_000, seed=SEED)
QUALITY = Training(label="prose", pool="mean", epochs=5, learning_rate=0.2, features=40_000, seed=SEED)


def ordinary(data: Path) -> list[Labelled]:
    """Prose that is not toxic, of sources that no model here is trained on, to count false alarms."""
    return [
        one_class("encyclopedia (enwiki)", labelled_sources.encyclopedia(data), False, "CC-BY-SA 3.0"),
        one_class("factbook", labelled_sources.factbook(data), False, "CC0"),
        one_class("biomedical abstracts", labelled_sources.medical_abstracts(data), False, "MIT"),
        one_class("books of the 19th century", labelled_sources.books(data), False, "public domain"),
        one_class("news (onestop)", labelled_sources.graded_news(data), False, "CC-BY-SA 4.0"),
    ]


def prose(data: Path) -> list[Labelled]:
    """The prose that both classifiers learn from; `positive` is set by the caller's use."""
    return [
        one_class("speeches_sotu", labelled_sources.speeches(data), False, "public domain"),
        one_class("science_scitldr", labelled_sources.abstracts(data), False, "Apache-2.0"),
    ]


def toxicity(data: Path, out: Path) -> Made:
    """`toxicity.ftz` and its card."""
    plain = [text for part in prose(data) for text in part.texts] + labelled_sources.posts(data)
    plain = _learnt(plain, TOXICITY)
    learn = [
        labelled_sources.tweets(data),
        labelled_sources.talk_pages(data),
        *prose(data),
        one_class("qa_stackexchange", labelled_sources.posts(data), False, "CC-BY-SA 3.0/4.0", "no mark-up"),
        one_class("docs_postgresql", labelled_sources.documentation(data), False, "PostgreSQL", "with its code"),
        one_class("faq_perl", labelled_sources.questions(data), False, "Artistic or GPL-1+", "with its code"),
        one_class(
            "short sentences", labelled_sources.sentences(plain, 1), False, "as their sources",
            "of speeches, abstracts and posts",
        ),
        one_class(
            "neutral sentences", made_texts.neutral_people(SEED, 6000), False, "made by this project",
            "name identities, against learning that the names are toxic",
        ),
    ]  # fmt: skip
    apart = "\n".join(_by_kind(learn, name) for name in ("wikipedia_talk", "davidson_tweets"))
    return build(
        out / "toxicity.ftz", "Toxicity", "How likely a text is offensive or hateful, in English.", learn,
        [labelled_sources.identity_templates(data), *ordinary(data)], TOXICITY, THRESHOLDS, threshold=0.95,
        identity=labelled_sources.identity_templates(data),
        notes=[
            "Kinds of text that are new to it, by the same recipe trained without them:\n\n" + apart,
            "How it does on the templates, whose toxic phrases are insults by their adjective alone, says little of"
            " real text; what it makes of the harmless ones is below.",
        ],
        limits=[
            "English only. Text that `filter` found to be in another language is not scored.",
            "Most of its toxic examples are tweets with swear words. It finds vulgarity well, hatred in"
            " polite words badly, and harmless swearing is toxic to it.",
            "The tweets' labels are known to be biased against African American English; so is this model.",
            "Toxic comments of talk pages are few (248), and it finds mild insults badly: the tables above say how"
            " badly. `toxicity.sentences_ratio` finds more of them in texts of several sentences.",
        ],
    )  # fmt: skip


def _by_kind(learn: Sequence[Labelled], name: str) -> str:
    """What a model that was trained without one of the two toxic sets makes of it."""
    rest = [part for part in learn if part.name != name]
    (left,) = [part for part in learn if part.name == name]
    model = load_bytes(train_classifier(rest, TOXICITY).binary)
    found = evaluate_classifier(model, TOXICITY.label, left, TOXICITY.pool, [0.5, 0.95])
    half, high = found.at(0.5), found.at(0.95)
    return (
        f"- {name}: AUC {found.auc:.3f} on all {len(left):,} texts; above 0.95 precision {high['precision']:.3f} and"
        f" recall {high['recall']:.3f}, above 0.5 precision {half['precision']:.3f} and recall {half['recall']:.3f}."
    )


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
    """Train both, and write `models.json` for every model in the folder."""
    data = Path(arguments[0])
    out = Path(arguments[1]) if len(arguments) > 1 else fasttext_model.MODELS
    known = {}
    for name, label, licence, train in (
        ("toxicity.ftz", TOXICITY.label, "see toxicity.md", toxicity),
        ("quality.ftz", QUALITY.label, "see quality.md", quality),
    ):
        result = train(data, out)
        print(f"{name}: {result.size:,} bytes, threshold {result.threshold:g}, card {result.card}")
        known[name] = {**_entry(out / name), "label": label, "languages": ["en"], "licence": licence}
    known[language_card.NAME] = language_card.entry(
        fasttext_model.MODELS
    )  # trained by `tools.train_language`
    other = fasttext_model.MODELS / "lid.176.ftz"
    known[other.name] = {**_entry(other), "licence": "CC-BY-SA-3.0, see LICENSE-lid176"}
    text = json.dumps(dict(sorted(known.items())), indent=2) + "\n"
    (out / "models.json").write_text(text, encoding="utf-8")


def _entry(path: Path) -> dict[str, Any]:
    binary = path.read_bytes()
    return {"bytes": len(binary), "xxh3": checksum(binary), "sha256": hashlib.sha256(binary).hexdigest()}


if __name__ == "__main__":
    main(sys.argv[1:])
