"""Planted documents: caught, removed otherwise, missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.pipeline.report.stage import Report
from corpusmill.schemas.recipe import Recipe
from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.made import Doc

ORIGINAL = Doc("orig#0", "an original text of some length", source_id="orig")


def labelled() -> list[list[Doc]]:
    text = "a plain text that is long enough"
    one = [
        ORIGINAL,
        Doc(
            "x#1", text, source_id="dup-caught", gone=("dedup", "dedup.exact"), copy_of=ORIGINAL, jaccard=1.0
        ),
        Doc("x#2", text, source_id="dup-stays"),
        Doc("x#3", text, source_id="dup-missed"),
        Doc("x#4", text, source_id="dup-filtered", gone=("filter", "r"), failed=[("r", 1.0, 2.0)]),
        Doc("x#5", text, source_id="far-kept"),
        Doc(
            "x#6", text, source_id="far-gone", gone=("dedup", "dedup.minhash"), copy_of=ORIGINAL, jaccard=0.8
        ),
    ]
    two = [
        Doc("y#0", text, "books", gone=("dedup", "dedup.minhash"), copy_of=one[2], jaccard=0.9),
        Doc(
            "y#1",
            text,
            source_id="pii-both",
            edits=[("email", 0, 5), ("phone", 8, 4)],
            redacted="<EMAIL> <PHONE>",
        ),
        Doc("y#2", text, source_id="pii-half", edits=[("email", 0, 5)], redacted="<EMAIL>"),
        Doc("y#3", text, source_id="innocent"),
        Doc("y#4", text, source_id="innocent-edited", edits=[("ip", 0, 5)], redacted="<IP>"),
        Doc("y#5", "mended “quotes”", source_id="moji-mended"),
        Doc("y#6", "still â€œbroken", source_id="moji-broken"),
        Doc("sub/broken.jsonl#1", "{", gone=("ingest", "malformed_json")),
        Doc("sub/broken.jsonl#2", text),
    ]
    return [one, two]


def labels() -> dict[str, Any]:
    pii = {"spans": [{"kind": "email"}, {"kind": "phone"}]}
    garbled = {"garbled": [{"value": "â€œ"}]}
    return {
        "kinds": {
            "copy": {"expected": "dedup", "ids": ["dup-caught", "dup-stays", "dup-missed", "dup-filtered", "nowhere"]},
            "graded": {"expected": "dedup", "ids": ["far-kept", "far-gone", "dup-caught"]},
            "pii": {"expected": "redact", "ids": ["pii-both", "pii-half"]},
            "innocent": {"expected": "keep", "ids": ["innocent", "innocent-edited"]},
            "garbled": {"expected": "repair", "ids": ["moji-mended", "moji-broken"]},
        },
        "documents": {
            "far-kept": {"jaccard5": 0.6}, "far-gone": {"jaccard5": 0.7}, "pii-both": pii, "pii-half": pii,
            "moji-mended": garbled, "moji-broken": garbled, "dup-caught": {},
        },
        "broken": {
            "file": "in/sub/broken.jsonl",
            "lines": [{"line": 2, "expected": "quarantine"}, {"line": 3, "expected": "keep"}],
        },
    }  # fmt: skip


def test_each_kind_is_judged_by_what_should_become_of_it(make_run: Maker, tmp_path: Path) -> None:
    file = tmp_path / "labels.json"
    file.write_text(json.dumps(labels()))
    made = make_run(labelled(), report={"labels": str(file)}, dedup={"similarity": 0.8})
    rows = {row["kind"]: row for row in made.figures()["planted"]}

    def tally(kind: str) -> tuple[int, int, dict[str, int], list[str]]:
        row = rows[kind]
        return row["planted"], row["caught"], row["elsewhere"], [one["id"] for one in row["missed"]]

    # A copy that others were removed for is caught; one removed by another stage is neither caught nor missed.
    assert tally("copy") == (5, 2, {"filter": 1}, ["dup-missed", "nowhere"])
    assert tally("graded, Jaccard < 0.8") == (2, 1, {}, ["far-gone"])
    assert tally("graded, Jaccard ≥ 0.8") == (1, 1, {}, [])
    assert tally("pii") == (2, 1, {}, ["pii-half"])
    assert tally("innocent") == (2, 1, {}, ["innocent-edited"])
    assert tally("garbled") == (2, 1, {}, ["moji-broken"])
    assert tally("broken line") == (1, 1, {}, [])
    assert tally("good line among broken ones") == (1, 1, {}, [])
    page = (made.root / "report/report.html").read_text()
    assert 'id="planted"' in page and "dup-missed" in page


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("not json", "not JSON"),
        ("[]", "must hold"),
        (
            '{"kinds": {"a": {"expected": "vanish", "ids": []}}}',
            r"kinds.a: must have ids .*one of filter, dedup",
        ),
    ],
)
def test_a_bad_label_file_is_named(
    make_run: Maker, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "labels.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=message) as error:
        make_run([[ORIGINAL]], report={"labels": str(file)}).report()
    assert "labels.json" in str(error.value)


def test_other_labels_are_another_key(tmp_path: Path) -> None:
    file = tmp_path / "labels.json"
    config = {"name": "a", "sources": {"web": {"paths": ["x"]}}, "report": {"labels": str(file)}}
    keys = []
    for content in (None, "{}", '{"kinds": {}}'):
        if content is not None:
            file.write_text(content)
        keys.append(Report(Recipe.model_validate(config)).key_params()["labels_xxh3"])
    assert len(set(keys)) == 3
