"""The stage: its parameters, its key, and what it is measured to find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.redact.stage import Redact
from tests.pipeline.corpus import documents, recipe


def test_the_key_is_asked_for_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"replacement": "pseudonym", "key_env": "SOME_KEY"}
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(UserError, match=r"redact\.key_env.*SOME_KEY is empty"):
        Redact(recipe(redact=params))
    monkeypatch.setenv("SOME_KEY", "short")
    with pytest.raises(UserError, match="5 characters"):
        Redact(recipe(redact=params))
    keys = []
    for value in ("first key of some length", "second key of some length"):
        monkeypatch.setenv("SOME_KEY", value)
        answer = Redact(recipe(redact=params)).key_params()
        assert value not in json.dumps(answer)
        keys.append(answer["key_fingerprint"])
    assert keys[0] != keys[1]
    assert "key_fingerprint" not in Redact(recipe()).key_params()


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(UserError, match=r"phone_regions: 'UK'"):
        Redact(recipe(redact={"phone_regions": ["UK"]}))
    with pytest.raises(UserError, match=r"redact\.kinds"):
        Redact(recipe(redact={"kinds": ["ip", "ip"]}))


def test_only_the_named_kinds_are_replaced() -> None:
    docs = documents(["ann@site.org 8.8.8.8 4111111111111111"])
    transform = Redact(recipe(redact={"kinds": ["ip"]})).transform(Folder("unused"), "00000")
    assert transform(docs).kept["text"][0].as_py() == "ann@site.org <IP> 4111111111111111"


def test_precision_and_recall_on_labelled_texts() -> None:
    """Floors a little below what `bench/redact.py` measures, so that a detector that breaks is seen."""
    if not Path("../shared/data/pii/presidio_synth_v2").is_dir():
        pytest.skip("needs ../shared/data/pii/presidio_synth_v2")
    from bench.redact import score

    floors = {"email": 1.0, "card": 0.9, "iban": 0.95, "ip": 0.95, "ssn": 1.0, "phone": 0.95}
    for kind, row in score("presidio_synth_v2/synth_dataset_v2.json").items():
        assert row["precision"] >= 0.99, kind
        assert row["recall"] >= floors[kind], kind


def test_one_kind_with_pseudonyms_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORPUSMILL_REDACT_KEY", raising=False)
    with pytest.raises(UserError, match="CORPUSMILL_REDACT_KEY is empty"):
        Redact(recipe(redact={"replacements": {"email": "pseudonym"}}))
    Redact(recipe(redact={"replacement": "pseudonym", "kinds": ["email"], "replacements": {"email": "tag"}}))
