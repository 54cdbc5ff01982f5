"""The exported JSON Schemas are current, and the laws that the models hold are held."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pydantic import ValidationError

from corpusmill.common.ids import doc_id, text_hash
from corpusmill.schemas.__main__ import FOLDER, exported
from corpusmill.schemas.manifest import Counts, hash_json, stage_key
from corpusmill.schemas.tables import SignalSpec, signals_schema


def test_exported_schemas_are_current() -> None:
    """`make schemas` rewrites them."""
    assert {f.name: f.read_text(encoding="utf-8") for f in FOLDER.iterdir()} == exported()


def test_conservation_is_a_property_of_counts() -> None:
    total = Counts(docs_in=3, kept=1, removed=1, quarantined=1) + Counts(docs_in=1, kept=1, bytes_kept=9)
    assert (total.docs_in, total.kept, total.bytes_kept) == (4, 2, 9)
    with pytest.raises(ValidationError, match="conservation broken: in 3 != kept 1"):
        Counts(docs_in=3, kept=1)


def test_ids_are_what_they_have_always_been() -> None:
    """Ids are in every ledger and shard ever written: they may never change."""
    assert doc_id("wiki", "a.xml#3").hex() == "299b33f651a3fd636caf1d34e8da156c"
    assert doc_id("wiki", "a.xml#3") != doc_id("wik", "ia.xml#3")
    assert text_hash("abc").hex() == "06b05ab6733a618578af5f94892f3950"


def test_keys_depend_on_content_not_on_order_or_hash_seed() -> None:
    assert hash_json({"a": 1, "b": [1, 2]}) == hash_json({"b": [1, 2], "a": 1})
    code = "from corpusmill.schemas.manifest import stage_key; print(stage_key('s', '1', {'x': 1, 'y': 2}, {'i': 'k'}))"
    keys = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert keys == {stage_key("s", "1", {"y": 2, "x": 1}, {"i": "k"})}


def test_signal_schema() -> None:
    spec = SignalSpec(name="a.b", dtype="int", unit="words", origin="here")
    assert signals_schema([spec]).field("a.b").type == pa.int64()
    with pytest.raises(ValidationError):
        SignalSpec(name="NoFamily", dtype="int", unit="words", origin="here")
