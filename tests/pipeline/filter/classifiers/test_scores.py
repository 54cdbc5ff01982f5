"""The models' signals: languages, windows, sentences, pooling, and what may be null."""

from __future__ import annotations

import unittest.mock
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.classifiers import fasttext_model, pooling, predictor, scores
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from corpusmill.pipeline.filter.classifiers.scores import ISO_639_1, iso_639_1
from corpusmill.pipeline.filter.classifiers.training import score_texts
from corpusmill.schemas.filter import KNOWN_WORDS, TRUSTED, FilterParams
from tests.pipeline.filter.classifiers import oracle
from tests.pipeline.filter.classifiers.test_language import TEXTS
from tests.pipeline.filter.helpers import PROSE

ABUSE = " you stupid fucking bitch, shut the fuck up "
GERMAN = " Der Fluss entspringt in den Bergen und fließt durch ein weites Tal."


def shipped(name: str) -> Predictor:
    file = fasttext_model.shipped(name)
    return predictor.load(file.path, file.xxh3)


def columns(texts: list[str], **params: Any) -> dict[str, list[Any]]:
    """The signals of texts under a recipe's parameters, with the shipped models."""
    given_params = FilterParams(**params)
    files = {
        "language": fasttext_model.shipped("lid.176.ftz"),
        "toxicity": fasttext_model.shipped(fasttext_model.SHIPPED["toxicity"]),
        "quality": fasttext_model.shipped("quality.ftz"),
    }
    models = {name: file for name, file in files.items() if getattr(given_params, name) is not None}
    signals, text = scores.ModelSignals(given_params, models), pa.array(texts, pa.large_string())
    found = signals.languages(text)
    found |= signals.scores(text, found, np.ones(len(text), np.bool_))
    return {name: column.to_pylist() for name, column in found.items()}


def test_languages() -> None:
    texts = {code: TEXTS[code] for code in ("en", "de", "fr", "ru", "ar", "zh", "hi")}
    codes, sure = scores.languages(pa.array(texts.values(), pa.large_string()), shipped("lid.176.ftz"))
    assert codes.to_pylist() == list(texts) and (np.asarray(sure) > 0.6).all()


def test_the_language_is_read_all_over_the_text_with_line_feeds_as_spaces() -> None:
    model = shipped("lid.176.ftz")
    menu = "Home About us Contact Log in Search Next page Privacy policy Terms of use " * 8
    texts = [menu + GERMAN * 60, PROSE.replace("\n", " "), PROSE, "", " \n\t", "\u3000", "\x00"]
    codes, sure = scores.languages(pa.array(texts, pa.large_string()), model)
    assert codes.to_pylist() == ["de", "en", "en", None, None, None, None]
    assert sure[1] == sure[2] and sure.to_pylist()[3:] == [0, 0, 0, 0]


@given(st.lists(st.text(max_size=100) | st.text(alphabet="ab \n", min_size=300, max_size=2000), max_size=5))
def test_windows_hold_the_cleaned_words_in_order(texts: list[str]) -> None:
    texts = [text for text in texts if text.isascii()]
    clean, offsets = scores.windows(texts)
    assert len(offsets) == len(texts) + 1 and offsets[0] == 0 and offsets[-1] == len(clean)
    for row, text in enumerate(texts):
        own = clean[offsets[row] : offsets[row + 1]].to_pylist()
        cut = oracle.windows(text, pooling.WINDOW_CHARS, pooling.MAX_WINDOWS)
        assert own == [line for line in oracle.clean(cut) if line]


def test_long_text_is_sampled_from_end_to_end() -> None:
    words = [f"word{i}" for i in range(20_000)]
    clean, offsets = scores.windows([" ".join(words)])
    assert len(clean) == pooling.MAX_WINDOWS == offsets[1]
    found = [word for window in clean.to_pylist() for word in window.split()]
    assert set(found) <= set(words)  # no word is cut
    places = [int(word[4:]) for word in found]
    assert places == sorted(places) and places[0] == 0 and places[-1] > 19_000


@given(st.lists(st.lists(st.floats(0, 1, width=32), max_size=30), max_size=6))
def test_pooling(documents: list[list[float]]) -> None:
    owner = np.cumsum([0, *map(len, documents)])
    flat = np.array([score for own in documents for score in own], np.float32)
    for pool, part in (("mean", 1.0), ("worst", pooling.WORST)):
        found = pooling.pooled(flat, owner, pool)  # type: ignore[arg-type]
        assert found.tolist() == pytest.approx([oracle.pooled(own, part) for own in documents], abs=1e-6)


@given(st.lists(st.text(max_size=300), max_size=4))
def test_every_signal_is_in_its_range_for_any_text(texts: list[str]) -> None:
    found = columns(texts)
    assert list(found) == [spec.name for spec in scores.SPECS]
    for name, column in found.items():
        assert len(column) == len(texts)
        if name != "language.code":
            assert all(value is None or 0 <= value <= 1 for value in column)


def test_the_same_text_has_the_same_scores_in_any_batch() -> None:
    texts = [PROSE, ABUSE, PROSE * 70, GERMAN, "", "x" * 5000, PROSE + ABUSE]
    together = columns(texts)
    for row, text in enumerate(texts):
        assert {name: column[row] for name, column in together.items()} == {
            name: column[0] for name, column in columns([text]).items()
        }


def test_judging_a_model_scores_as_the_stage_does() -> None:
    texts = [PROSE * 20 + ABUSE, ABUSE, "", PROSE]
    file = fasttext_model.shipped(fasttext_model.SHIPPED["toxicity"])
    found, model = columns(texts), predictor.load(file.path, file.xxh3)
    worst = score_texts(model, "toxic", texts, "worst")
    assert (
        worst.tolist() == found["toxicity.score"]
        and worst[0] > 2 * score_texts(model, "toxic", texts, "mean")[0]
    )
    assert score_texts(shipped("quality.ftz"), "prose", texts, "mean").tolist() == found["quality.score"]
    many = score_texts(model, "toxic", ["river " * (i % 7) + "fuck" * (i % 2) for i in range(5000)], "worst")
    assert len(set(many.tolist())) > 5 and (many[14:] == many[:-14]).all()


def test_one_villain_does_not_condemn_a_book_but_his_sentence_shows() -> None:
    book = PROSE * 60
    found = columns([book, book[:9000] + "." + ABUSE + ". " + book[9000:], ABUSE])
    score, worst, ratio = (
        found[f"toxicity.{name}"] for name in ("score", "worst_sentence", "sentences_ratio")
    )
    assert score[0] < 0.5 and score[1] < 0.5 < 0.95 < score[2]
    assert worst[0] < 0.4 < 0.95 < worst[1] and worst[2] > 0.95
    assert ratio[0] == 0 and 0 < ratio[1] < 0.01 and ratio[2] == 1


def test_a_sentence_of_the_limit_is_toxic_and_of_less_is_not() -> None:
    read = scores.reading(
        pa.array(["One two three. Four five six. Seven eight nine.", ""], pa.large_string()), "windows"
    )
    model = unittest.mock.create_autospec(Predictor, instance=True)
    limit = np.float32(pooling.TOXIC_SENTENCE)
    below = np.nextafter(limit, np.float32(0))
    model.probability.side_effect = [np.array([0.5], np.float32), np.array([limit, below, 0], np.float32)]
    found = scores.measured("toxicity", read, model, "toxic")
    assert {name: column.tolist() for name, column in found.items()} == {
        "toxicity.score": [0.5, 0], "toxicity.worst_sentence": [limit, 0],
        "toxicity.sentences_ratio": [np.float32(1 / 3), 0],
    }  # fmt: skip


def test_text_in_another_language_has_no_quality_unless_nobody_asked_for_it() -> None:
    asked = columns([PROSE, GERMAN, ""])
    assert [value is None for value in asked["quality.score"]] == [False, True, False]
    assert None not in columns([PROSE, GERMAN, ""], language=None)["quality.score"]


def test_toxicity_is_scored_in_any_language_with_the_doubt_stated() -> None:
    # lid.176 takes the first for another language than English.
    found = columns(["ur a damn idiot lol", GERMAN])
    assert found["language.code"][0] != "en" and found["toxicity.score"][0] > 0.8
    assert found[KNOWN_WORDS][0] > TRUSTED > found[KNOWN_WORDS][1]


def test_what_is_not_asked_for_is_null() -> None:
    found = columns([PROSE, ""], language=None, toxicity=None, quality=None)
    assert len(found) == len(scores.SPECS) and all(column == [None, None] for column in found.values())


def test_a_model_of_the_users_own_may_read_the_text_as_it_stands() -> None:
    texts = [PROSE.upper(), PROSE.lower()]
    as_text = columns(texts, quality={"input": "text"})["quality.score"]
    model = shipped("quality.ftz")
    words = oracle.words_of(texts)
    assert as_text == model.probability(words, words.bounds, "prose").tolist() and as_text[0] != as_text[1]
    by_windows = columns(texts)["quality.score"]
    assert by_windows[0] == by_windows[1]


def test_labels_that_the_model_lacks() -> None:
    with pytest.raises(UserError, match="'toxik' is not a label of the model; did you mean 'toxic'"):
        columns(["x"], toxicity={"label": "toxik"})
    with pytest.raises(
        UserError, match="toxicity: a toxicity model scores all of its labels: leave `label` out"
    ):
        columns(["x"], toxicity={"label": "hate"})
    assert columns([ABUSE], quality={"label": "__label__other"})["quality.score"][0] > 0.5


def test_a_model_in_the_place_of_another_kind(tmp_path: Path) -> None:
    toxic = str(fasttext_model.MODELS / "toxicity.safetensors")
    files = {"quality": fasttext_model.find(toxic)}
    with pytest.raises(
        UserError, match=r"filter.quality.model: .* is a toxicity model \(allowed: a fastText"
    ):
        scores.ModelSignals(FilterParams(quality={"model": toxic}), files)
    own = str(fasttext_model.MODELS / "quality.ftz")
    asked = {"model": own, "label": "prose", "remove_labels": {"hate": 0.5}}
    with pytest.raises(UserError, match="filter.toxicity.remove_labels: .* has one label, prose"):
        scores.ModelSignals(FilterParams(toxicity=asked), {"toxicity": fasttext_model.find(own)})


def test_codes() -> None:
    labels = {
        "en": "en", "ceb": "ceb", "eng_Latn": "en", "cmn_Hani": "zh", "zho_Hans": "zh", "arb_Arab": "ar", "nob_Latn": "nb",
        "ceb_Latn": "ceb", "deu-Latn": "de", "und_Mong": "und", "__x": "__x", "als": "als", "als_Latn": "sq",
        "heb_Hebr": "he", "ind_Latn": "id", "jav_Latn": "jv", "tgl_Latn": "tl", "fil_Latn": "tl", "hbs_Latn": "sh",
    }  # fmt: skip
    assert {label: iso_639_1(label) for label in labels} == labels
    # What lid.176 says is left as it is.
    assert [iso_639_1(label) for label in shipped("lid.176.ftz").labels] == shipped("lid.176.ftz").labels
    # A language has the same code from any model.
    assert {label for label in shipped("lid.176.ftz").labels if len(label) == 2} <= set(ISO_639_1.values())


def test_languages_of_a_model_with_scripts_in_its_labels(tmp_path: Path) -> None:
    lines = "".join(
        f"__label__eng_Latn the river and {i % 9}\n__label__deu_Latn der fluss und {i % 9}\n"
        for i in range(300)
    )
    options = {"epoch": 10, "minCount": 1, "bucket": 500, "dim": 8, "minn": 2, "maxn": 3, "loss": "softmax"}
    path = oracle.train(tmp_path, {"glot": (options, None)}, lines)["glot"]
    file = fasttext_model.find(str(path))
    texts = pa.array(["der fluss und", "the river and"], pa.large_string())
    for labels, wanted in (("iso639-1", ["de", "en"]), ("model", ["deu_Latn", "eng_Latn"])):
        params = FilterParams(language={"model": str(path), "labels": labels})  # type: ignore[arg-type]
        signals = scores.ModelSignals(params, {"language": file})
        assert signals.languages(texts)["language.code"].to_pylist() == wanted


def test_real_reference_prose_is_not_toxic(data_dir: Path) -> None:
    from tools import labelled_sources

    texts = labelled_sources.encyclopedia(data_dir) + labelled_sources.medical_abstracts(data_dir)[:300]
    found = np.array(columns(texts, language=None, quality=None)["toxicity.score"])
    assert len(texts) > 350 and (found > 0.95).mean() <= 0.005
