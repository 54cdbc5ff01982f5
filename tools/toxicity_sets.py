"""The labelled sets of the toxicity model, with what each says of its five labels, and the prose that it must leave alone.

A label that a set does not judge is unknown (nan). `sexual` has no labelled set: of the comments and tweets, those with an
explicit word are positive, the others negative (weak labels).
"""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from corpusmill.pipeline.filter.toxicity.model import NAMES
from corpusmill.pipeline.filter.toxicity.training import LabelledTexts
from tools import labelled_sources, made_texts
from tools.labelled_sources import json_lines
from tools.made_contrasts import contrasts
from tools.toxicity_words import classes

SEED: Final = 22
HARMLESS_CHARS: Final = 1500  # of a harmless text as much is learnt from
UNKNOWN: Final = float("nan")
OFFENSIVE: Final = ("offensive", "hateful", "abusive", "disrespectful")  # sentiments of MLMA that are toxic
# Sets whose texts are of one kind and place: none of a family is learnt from when one of it is judged.
FAMILIES: Final = {
    "davidson_tweets": "tweets",
    "mlma_tweets": "tweets",
    "wikipedia_talk": "talk pages",
    "jigsaw_sample": "talk pages",
}

LANGUAGES: Final = ("en", "af", "de", "es", "fr", "hu", "it", "nl", "sv", "tl")

Row = tuple[str, Sequence[float]]


def family(name: str) -> str:
    """The family of a set: itself, mostly."""
    return FAMILIES.get(name, name)


def judged(data: Path) -> list[LabelledTexts]:
    """The labelled sets; `labels` are toxic, insult, hate, threat, sexual."""
    folder = data / "toxicity"
    _, words = classes()
    found = [
        _set("forum_insults", _json(folder, "forum_insults", lambda r: (r["insult"], r["insult"], UNKNOWN, UNKNOWN, 0)), words),
        _set("wikipedia_talk", _talk_pages(data), words),
        _set("jigsaw_sample", _json(folder, "jigsaw_sample", _jigsaw), words),
        _set("davidson_tweets", _davidson(folder), words),
        _set("mlma_tweets", _json(folder, "mlma_tweets", _mlma, lambda r: r["language"] == "en"), words),
        _set("edos_sexism", _json(folder, "edos_sexism", _edos), words),
        _set("ethos", _json(folder, "ethos", lambda r: (r["hateful"] >= 0.5, UNKNOWN, r["hateful"] >= 0.5, UNKNOWN, UNKNOWN)), words),
        _set("hatemoji_build", _json(folder, "hatemoji_build", _hatemoji), words),
        _set("convabuse", _json(folder, "convabuse", _convabuse, lambda r: bool(r["votes"])), words),
        _set("toxigen_prompts", _json(folder, "toxigen_prompts", lambda r: (r["hateful"], UNKNOWN, r["hateful"], UNKNOWN, UNKNOWN)), words),
    ]  # fmt: skip
    phrases = labelled_sources.identity_templates(data)
    labels = [(float(bad), UNKNOWN, UNKNOWN, 0.0, UNKNOWN) for bad in phrases.positive]
    return [*found, LabelledTexts("identity_templates", list(phrases.texts), np.array(labels, np.float32))]


def other_languages(data: Path) -> list[LabelledTexts]:
    """Tweets in French and Arabic, which are judged and not learnt from."""
    folder = data / "toxicity"
    _, words = classes()
    return [
        _set(f"mlma_tweets ({name})", _json(folder, "mlma_tweets", _mlma, _in(code)), words)
        for code, name in (("fr", "French"), ("ar", "Arabic"))
    ]


def sentences_by_language(data: Path) -> dict[str, list[str]]:
    """Sentences of news in English and in languages that share letters or words with it."""
    found: dict[str, list[str]] = {}
    for row in json_lines(data / "langid/lingua_testdata/lingua_test.jsonl.gz"):
        if row["kind"] == "sentences" and row["lang"] in LANGUAGES:
            found.setdefault(row["lang"], []).append(row["text"])
    return {code: found[code] for code in LANGUAGES}


def harmless(data: Path) -> list[LabelledTexts]:
    """Prose, posts and documentation without a toxic text, and made sentences, all negative; and made pairs with their labels."""
    speeches, abstracts = labelled_sources.speeches(data), labelled_sources.abstracts(data)
    posts = labelled_sources.posts(data)
    sentences = labelled_sources.sentences([*speeches, *abstracts, *posts], 1)
    parts = {
        "speeches_sotu": speeches,
        "science_scitldr": abstracts,
        "qa_stackexchange": posts[:3000],
        "docs_postgresql": labelled_sources.documentation(data),
        "faq_perl": labelled_sources.questions(data),
        "short sentences": sentences[:12_000],
        "neutral sentences": made_texts.neutral_people(SEED, 3000),
    }
    none = [
        LabelledTexts(
            name, [text[:HARMLESS_CHARS] for text in texts], np.zeros((len(texts), len(NAMES)), np.float32)
        )
        for name, texts in parts.items()
    ]
    pairs = contrasts(SEED, 6000)
    made = LabelledTexts(
        "contrasts", [text for text, _ in pairs], np.array([labels for _, labels in pairs], np.float32)
    )
    return [*none, made]


def prose(data: Path) -> dict[str, list[str]]:
    """Prose that nothing is learnt from, to count false alarms."""
    return {
        "encyclopedia": labelled_sources.encyclopedia(data),
        "factbook": labelled_sources.factbook(data),
        "biomedical abstracts": labelled_sources.medical_abstracts(data),
        "books of the 19th century": labelled_sources.books(data),
        "news": labelled_sources.graded_news(data),
    }


def _set(name: str, rows: Iterable[Row], explicit: frozenset[str]) -> LabelledTexts:
    texts, labels = [], []
    for text, own in rows:
        if not text.strip():
            continue
        values = [float(value) for value in own]
        if values[-1] == 0 or values[0] == 1:
            values[-1] = float(any(word in explicit for word in re.findall(r"[\w'-]+", text.lower())))
        texts.append(text)
        labels.append(values)
    return LabelledTexts(name, texts, np.array(labels, np.float32))


def _json(
    folder: Path,
    name: str,
    labels: Callable[[Any], Sequence[float]],
    wanted: Callable[[Any], bool] = lambda row: True,
) -> Iterable[Row]:
    for row in json_lines(folder / name / "texts.jsonl.gz"):
        if wanted(row):
            yield row["text"].replace("@user", " ").replace("@url", " "), labels(row)


def _in(code: str) -> Callable[[Any], bool]:
    return lambda row: bool(row["language"] == code)


def _talk_pages(data: Path) -> Iterable[Row]:
    own = labelled_sources.talk_pages(data)
    return [
        (text, (float(bad), UNKNOWN, UNKNOWN, UNKNOWN, 0))
        for text, bad in zip(own.texts, own.positive, strict=True)
    ]


def _davidson(folder: Path) -> Iterable[Row]:
    with (folder / "davidson_tweets/labeled_data.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = re.sub(r"\bRT\b|[!\"]{2,}", " ", html.unescape(row["tweet"]))
            yield text, (row["class"] != "2", UNKNOWN, row["class"] == "0", UNKNOWN, 0)


def _jigsaw(row: Any) -> Sequence[float]:
    return row["toxic"], row["insult"], row["identity_hate"], row["threat"], 0


def _mlma(row: Any) -> Sequence[float]:
    own = row["sentiment"].split("_")
    return any(kind in own for kind in OFFENSIVE), UNKNOWN, "hateful" in own, UNKNOWN, 0


def _edos(row: Any) -> Sequence[float]:
    # "Not sexist" may be toxic in another way: what is not, is not known, but most are not.
    return row["sexist"], UNKNOWN, row["sexist"], row["category"].startswith("1"), 0


def _hatemoji(row: Any) -> Sequence[float]:
    return row["hateful"], UNKNOWN, row["hateful"], row["type"] == "threateninglanguage", UNKNOWN


def _convabuse(row: Any) -> Sequence[float]:
    abusive = sum(row["votes"]) < 0
    return abusive, abusive, UNKNOWN, UNKNOWN, 0
