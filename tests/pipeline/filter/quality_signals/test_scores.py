"""`quality_signals.score` in the stage: as stored signals say, with what is not measured, with a model of one's own, as a rule."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.quality_signals.inputs import INPUTS
from corpusmill.pipeline.filter.quality_signals.measure import score_of
from corpusmill.pipeline.filter.quality_signals.model import (
    Curve,
    SignalModel,
    from_bytes,
    load,
    to_bytes,
)
from tests.pipeline.filter.helpers import PROSE, apply, documents, stage

ROOT = Path(__file__).resolve().parents[4]
MENU = "Home\nAbout us\nContact\nLog in\nSign up\nCart (0)\nRead more...\nPrivacy policy\nTerms of use\n"
LISTING = "\n".join(
    f"-rw-r--r-- root/root {n * 321} 2023-03-0{n} 12:3{n} ./usr/share/doc/a{n}.gz" for n in range(1, 9)
)
GERMAN = (
    "Der Fluss entspringt in den Bergen und fließt durch ein weites Tal, bevor er das Meer erreicht. " * 3
)
TEXTS = [PROSE, MENU, LISTING, GERMAN, ""]


def shipped() -> SignalModel:
    file = fasttext_model.shipped("quality_signals.json")
    return load(file.path, file.xxh3)


def found(**params: Any) -> pa.Table:
    return apply(documents(TEXTS), rules=[], **params).signals


def test_prose_is_above_and_what_stands_beside_it_below() -> None:
    score = found(language=None)["quality_signals.score"].to_pylist()
    assert score[0] > 0.8 and max(score[1], score[2], score[4]) < 0.2
    # Not asked about German, nor about a listing that looks like no English.
    assert [one is None for one in found()["quality_signals.score"].to_pylist()] == [
        False,
        False,
        True,
        True,
        False,
    ]


def test_the_score_is_what_the_stored_signals_say() -> None:
    signals = found(language=None)
    columns = {name: signals[name] for name in signals.schema.names}
    again = shipped().probability(columns)
    assert again.tolist() == signals["quality_signals.score"].to_pylist()
    # ... and what a text alone is given by `classifier score`.
    assert score_of(shipped(), TEXTS).tolist() == again.tolist()


def test_in_any_batch_the_same() -> None:
    alone = [
        apply(documents([text]), rules=[], language=None).signals["quality_signals.score"][0].as_py()
        for text in TEXTS
    ]
    assert alone == found(language=None)["quality_signals.score"].to_pylist()


def test_without_fasttext_or_with_another_one_it_scores_by_the_rest() -> None:
    rest = found(language=None, quality=None)
    assert rest["quality.score"].null_count == 5
    scores = rest["quality_signals.score"].to_pylist()
    assert scores[0] > 0.8 and max(scores[1:3]) < 0.2
    assert found(language=None, quality={"label": "other"})["quality_signals.score"].to_pylist() == scores
    assert found(language=None, quality={"input": "text"})["quality_signals.score"].to_pylist() == scores
    assert found(language=None)["quality_signals.score"].to_pylist() != scores


def test_a_section_of_null_measures_nothing() -> None:
    assert found(quality_signals=None)["quality_signals.score"].null_count == 5


def test_it_removes_when_asked_and_the_rest_is_as_without() -> None:
    docs, params = documents([PROSE, MENU, LISTING]), {"rules": [], "language": None}
    plain, asked = apply(docs, **params), apply(docs, **params, quality_signals={"remove_below": 0.5})
    assert asked.signals.equals(plain.signals)
    rows = asked.decisions.to_pylist()
    assert [row["doc_id"] for row in rows] == docs["doc_id"].to_pylist()[1:]
    assert {(row["rule"], row["threshold"]) for row in rows} == {("quality_signals.remove_below", 0.5)}
    assert asked.kept.equals(plain.kept.slice(0, 1))
    off = {"quality_signals": {"remove_below": 0.5}, "disable": ["quality_signals.remove_below"]}
    assert apply(docs, **params, **off).kept.equals(plain.kept)


def test_a_model_of_ones_own_is_run_on_every_language(tmp_path: Path) -> None:
    own = SignalModel("short", 0.0, (Curve("gopher.word_count", "1", "down", (0.0, 100.0), (2.0, -2.0)),))
    path = tmp_path / "mine.json"
    path.write_bytes(to_bytes(own))
    scores = found(quality_signals={"model": str(path), "remove_above": 0.9})[
        "quality_signals.score"
    ].to_pylist()
    assert scores[3] is not None and scores[4] == np.float32(1 / (1 + np.exp(-2)))
    assert stage(quality_signals={"model": str(path)}).key_params()["models"]["quality_signals"] != stage().key_params()["models"]["quality_signals"]  # fmt: skip


@pytest.mark.parametrize(
    ("curve", "reason"),
    [
        (("mine.other", "1"), r"reads the signal mine\.other, which is not measured"),
        (("language.code", "2"), r"reads the signal language\.code, which is not measured"),
        (("gopher.word_count", "0"), r"was trained on version 0 of gopher\.word_count, which is at 1 now"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_any_work(
    tmp_path: Path, curve: tuple[str, str], reason: str
) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(to_bytes(SignalModel("x", 0.0, (Curve(*curve, "free", (0.0, 1.0), (0.0, 1.0)),))))
    with pytest.raises(UserError, match=rf"^filter\.quality_signals\.model: .*mine\.json: {reason}"):
        stage(quality_signals={"model": str(path)}).check()


def test_a_model_in_the_place_of_another_kind(tmp_path: Path) -> None:
    fast = str(fasttext_model.MODELS / "quality.ftz")
    with pytest.raises(UserError, match=r"quality\.ftz: no model over signals of this version"):
        stage(quality_signals={"model": fast}).check()
    over = str(fasttext_model.MODELS / "quality_signals.json")
    for section in ("quality", "toxicity"):
        with pytest.raises(
            UserError, match=rf"^filter\.{section}\.model: .* give it as filter\.quality_signals\.model$"
        ):
            stage(**{section: {"model": over}}).check()
    with pytest.raises(UserError, match="no such file"):
        stage(quality_signals={"model": str(tmp_path / "none.json")}).transform(Folder("unused"), "0")


def test_the_shipped_model_is_monotone_where_the_table_says_so() -> None:
    directions = {one.signal: one.direction for one in INPUTS}
    model = from_bytes((fasttext_model.MODELS / "quality_signals.json").read_bytes(), "shipped")
    assert (
        all(curve.direction == directions[curve.signal] for curve in model.curves) and len(model.curves) > 30
    )
    assert model.fasttext == fasttext_model.shipped("quality.ftz").xxh3
    assert json.loads(to_bytes(model))["languages"] == ["en"]


def test_the_examples_of_the_page_are_the_model_s() -> None:
    page = (
        (ROOT / "docs/decisions.md").read_text(encoding="utf-8").split("\n## Quality\n")[1].split("\n## ")[0]
    )
    rows = re.findall(r"^\| (.+?) \| (\d\.\d\d) \|", page, re.MULTILINE)
    assert len(rows) > 5
    scores = score_of(shipped(), [text.replace("⏎", "\n") for text, _ in rows])
    assert [f"{score:.2f}" for score in scores] == [shown for _, shown in rows]
