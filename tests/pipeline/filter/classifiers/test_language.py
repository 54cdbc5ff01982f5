"""The shipped model for languages: scripts as evidence, what is unknown, mixed documents, and the kernels' arithmetic."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.filter.classifiers import fasttext_model, language, predictor, scores
from corpusmill.pipeline.filter.classifiers.language import Found, Profile
from corpusmill.pipeline.filter.classifiers.scripts import SCRIPTS
from corpusmill.schemas.filter import FilterParams
from tests.pipeline.filter.helpers import PROSE

TEXTS = {
    "en": PROSE,
    "de": "Der Fluss entspringt in den Bergen und fließt durch ein weites Tal.",
    "fr": "La rivière prend sa source dans les collines au nord de la ville.",
    "ru": "Река берёт начало в холмах к северу от города.",
    "ar": "ينبع النهر من التلال الواقعة شمال المدينة",
    "zh": "这条河发源于城市北部的山丘，流经宽阔的山谷。",
    "ja": "この川は町の北にある丘から流れ出し、広い谷を通っています。",
    "hi": "नदी शहर के उत्तर में पहाड़ियों से निकलती है।",
    "ha": "Kogin yana farawa daga tsaunuka a arewacin garin kuma yana wucewa ta cikin kwari mai faɗi.",
    "sw": "Mto huo unaanzia kwenye vilima kaskazini mwa mji na kupita katika bonde pana.",
    "so": "Webigu wuxuu ka soo bilaabmaa buuraha waqooyiga magaalada wuxuuna maraa dooxo ballaaran.",
    "mi": "Ka tīmata te awa i ngā puke ki te raki o te tāone, ā, ka rere mā te awaawa whānui.",
    "ka": "მდინარე სათავეს ქალაქის ჩრდილოეთით მდებარე ბორცვებში იღებს.",
}


def found(texts: list[str], by_window: bool = False) -> tuple[Found, list[str]]:
    """What the shipped model finds, and its labels."""
    file = fasttext_model.shipped(fasttext_model.LANGUAGE_MODEL)
    model = predictor.load(file.path, file.xxh3)
    known = language.profile(str(file.profile), tuple(model.labels))
    return language.identify(pa.array(texts, pa.large_string()), model, known, by_window), model.labels


def codes(texts: list[str]) -> list[str]:
    answers, labels = found(texts)
    return [labels[n] if n >= 0 else "" for n in answers.label.tolist()]


def test_languages_of_every_continent() -> None:
    answers, labels = found(list(TEXTS.values()))
    assert [labels[n] for n in answers.label.tolist()] == list(TEXTS)
    assert (answers.score > 0.6).all()


def test_numbers_codes_and_random_letters_are_no_language() -> None:
    rng = random.Random(3)
    noise = [
        " ".join("".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))) for _ in range(30))
        for _ in range(20)
    ]
    answers = codes(
        [
            *noise,
            "1234 5678 0x7f3a 99 12 4 81 77 1",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        ]
    )
    assert answers.count(language.UNKNOWN) >= 20


def test_a_script_that_no_label_is_written_in_is_unknown_and_one_of_a_single_language_is_that() -> None:
    assert codes(["𐌰𐍄𐍄𐌰 𐌿𐌽𐍃𐌰𐍂 𐌸𐌿 𐌹𐌽 𐌷𐌹𐌼𐌹𐌽𐌰𐌼", "αβγ", "กรุงเทพ", "", " \n"]) == ["und", "el", "th", "", ""]


@given(st.text(max_size=200))
def test_any_text_has_an_answer_that_its_scripts_allow(text: str) -> None:
    answers, _ = found([text])
    number, score = int(answers.label[0]), float(answers.score[0])
    assert 0 <= score <= 1 and (number >= 0 or score == 0)


def test_a_mixed_document_has_two_languages_with_their_shares() -> None:
    mixed = (TEXTS["en"] + " ") * 12 + (TEXTS["de"] + " ") * 20
    answers, labels = found([mixed, TEXTS["en"] * 9, TEXTS["ka"]], by_window=True)
    first, second = labels[answers.label[0]], labels[answers.second[0]]
    assert {first, second} == {"en", "de"} and 0.2 < answers.second_share[0] <= answers.share[0] < 0.8
    assert answers.share[1:].tolist() == [1, 1] and answers.second[1:].tolist() == [-1, -1]


def test_the_languages_of_windows_are_measured_only_for_who_asks() -> None:
    file = fasttext_model.shipped(fasttext_model.LANGUAGE_MODEL)
    text = pa.array([TEXTS["en"]], pa.large_string())
    names = {spec.name for spec in scores.MIXED_SPECS}
    plain = FilterParams(toxicity=None, quality=None)
    mixed = FilterParams(toxicity=None, quality=None, language={"mixed": True})  # type: ignore[arg-type]
    assert not names & scores.ModelSignals(plain, {"language": file}).languages(text).keys()
    assert names <= scores.ModelSignals(mixed, {"language": file}).languages(text).keys()
    by_rule = scores.ModelSignals(plain, {"language": file}, asked=["language.second_share"]).languages(text)
    assert names & by_rule.keys() == {"language.second_share"}
    assert by_rule["language.second_share"].to_pylist() == [0.0]


def test_a_profile_names_every_label_of_its_model(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    lengths = [{"letters": 20, "temperature": 1.5}, {"letters": 1 << 40, "temperature": 1.1}]
    path.write_text(
        json.dumps(
            {
                "scripts": {"en": ["Latin"], "sr": ["Cyrillic", "Latin"]},
                "temperatures": lengths,
                "priors": {"common": {"weight": 0, "labels": "de en"}, "others": {"weight": -2.5}},
                "unknown": 0.3,
            }
        )
    )
    known = Profile.read(path, ["en", "und", "sr"])
    assert known.priors.tolist() == [0, 0, -2.5]
    latin, cyrillic = 1 << SCRIPTS.index("Latin"), 1 << SCRIPTS.index("Cyrillic")
    assert known.scripts.tolist() == [latin, (1 << 64) - 1, latin | cyrillic] and known.label == 1
    with pytest.raises(KeyError):
        Profile.read(path, ["en", "xx"])
