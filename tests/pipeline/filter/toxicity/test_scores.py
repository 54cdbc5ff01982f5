"""The signals of the toxicity model that ships: any text, by sentence, the doubt where it knows few words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.classifiers import fasttext_model, predictor
from corpusmill.pipeline.filter.classifiers.pooling import TOXIC_SENTENCE
from corpusmill.pipeline.filter.toxicity.model import NAMES, ToxicityModel
from corpusmill.pipeline.filter.toxicity.scores import document_scores, measured
from corpusmill.schemas.filter import KNOWN_WORDS, TRUSTED
from tests.pipeline.filter.helpers import PROSE

ROOT = Path(__file__).resolve().parents[4]
ABUSE = " you stupid fucking bitch, shut the fuck up "
GERMAN = "Der Fluss entspringt in den Bergen und fließt durch ein weites Tal, bevor er das Meer erreicht."


def shipped() -> ToxicityModel:
    file = fasttext_model.shipped(fasttext_model.SHIPPED["toxicity"])
    model = predictor.load(file.path, file.xxh3)
    assert isinstance(model, ToxicityModel)
    return model


def signals(*texts: str) -> dict[str, list[float]]:
    return {
        name: values.tolist()
        for name, values in measured(pa.array(texts, pa.large_string()), shipped()).items()
    }


@given(st.lists(st.text(max_size=300), max_size=4))
def test_every_signal_is_a_share_for_any_text_and_the_same_in_any_batch(texts: list[str]) -> None:
    found = signals(*texts)
    assert len(found) == len(NAMES) + 3
    for name, values in found.items():
        assert len(values) == len(texts) and all(0 <= value <= 1 for value in values)
        assert values == [signals(text)[name][0] for text in texts]


def test_one_villain_does_not_condemn_a_book_but_his_sentence_shows() -> None:
    book = PROSE * 60
    found = signals(book, book[:9000] + "." + ABUSE + ". " + book[9000:], ABUSE, "")
    score, worst, share = (
        found[f"toxicity.{name}"] for name in ("score", "worst_sentence", "sentences_ratio")
    )
    assert score[0] < 0.3 and score[1] < 0.5 < 0.9 < score[2]
    assert worst[0] < TOXIC_SENTENCE < 0.8 < worst[1] and 0 < share[1] < 0.02 and share[2] == 1
    assert share[0] == 0 and [found[name][3] for name in found] == [0] * len(found)


def test_labels_tell_kinds_apart() -> None:
    found = signals("I will kill you.", "you are such a stupid moron", "Muslims are vermin, deport them all")
    for row, label in enumerate(("threat", "insult", "hate")):
        values = found[f"toxicity.{label}"]
        assert values[row] == max(values) and values[row] > sorted(values)[1] + 0.05


def test_disguises_change_nothing() -> None:
    plain, *disguised = signals("you fucking asshole", "you f.u.c.k.i.n.g a$$h0le", "YOU FUUUCKING asshole")[
        "toxicity.score"
    ]
    assert disguised == [plain] * 2 and plain > 0.8


def test_the_doubt_is_stated_where_few_words_are_known() -> None:
    known = signals(PROSE, GERMAN, "ok", "wtf lol")[KNOWN_WORDS]
    assert known[0] > 0.85 and known[1] < TRUSTED and known[2:] == [1, 1]


def test_one_label_of_documents() -> None:
    text = pa.array([ABUSE, PROSE * 20 + ABUSE, ""], pa.large_string())
    model = shipped()
    found = measured(text, model)
    assert (document_scores(text, model, "toxic", "worst") == found["toxicity.score"]).all()
    assert (document_scores(text, model, "insult", "worst") == found["toxicity.insult"]).all()
    mean = document_scores(text, model, "toxic", "mean")
    assert mean[1] < found["toxicity.score"][1] and np.isfinite(mean).all()
    assert document_scores(text, model, "toxic", "worst", "text").shape == (3,)


def test_the_examples_of_the_page_are_the_model_s() -> None:
    page = (ROOT / "docs/decisions.md").read_text(encoding="utf-8")
    page = page.split("\n## Toxicity\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (\d\.\d\d) \|", page, re.MULTILINE)
    assert len(rows) > 5
    found = signals(*(text for text, _ in rows))["toxicity.score"]
    assert [f"{score:.2f}" for score in found] == [shown for _, shown in rows]
