"""The data card: front matter as the Hub reads it, all headings, no holes, no corpus text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.report.card import card, front_matter, licences
from corpusmill.schemas.manifest import Counts
from tests.conftest import ROOT
from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.corpora import hostile, ordinary
from tests.pipeline.report.made import publish_manifest

# What templates and unfinished code leave behind.
PLACEHOLDER = re.compile("More Information Needed|None|TO[- ]?DO|TBD")
DATASHEET = (
    "Motivation",
    "Composition",
    "Collection",
    "Preprocessing",
    "Uses",
    "Distribution",
    "Maintenance",
)
TEMPLATE = (
    "Dataset Details", "Dataset Description", "Dataset Sources", "Direct Use", "Out-of-Scope Use", "Dataset Structure",
    "Dataset Creation", "Curation Rationale", "Source Data", "Data Collection and Processing",
    "Who are the source data producers?", "Annotations", "Personal and Sensitive Information",
    "Bias, Risks, and Limitations", "Recommendations", "Citation", "Dataset Card Authors", "Dataset Card Contact",
)  # fmt: skip


def headings(text: str) -> list[str]:
    return [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]


def test_the_hub_reads_the_front_matter_back(make_run: Maker, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    made = make_run(ordinary())
    _add_shards(made)
    path = made.report() / "card.md"
    loaded = hub.DatasetCard.load(path)
    data = loaded.data.to_dict()
    assert data["pretty_name"] == "made" and data["language"] == ["en", "fr"]
    assert data["size_categories"] == ["n<1K"] and data["task_categories"] == ["text-generation"]
    default, books = data["configs"]
    assert default["config_name"] == "default" and default["default"] is True
    assert books["data_files"] == [
        {"split": "train", "path": ["shards/books/train/*.tar"]},
        {"split": "validation", "path": ["shards/books/validation/*.tar"]},
    ]
    loaded.save(tmp_path / "again.md")
    assert hub.DatasetCard.load(tmp_path / "again.md").data.to_dict() == data


def test_headings_are_the_templates_and_the_datasheets(make_run: Maker) -> None:
    text = (make_run(ordinary()).report() / "card.md").read_text()
    found = headings(text.split("---\n", 2)[2])
    assert set(TEMPLATE) <= set(found)
    for wanted in DATASHEET:
        assert any(heading.startswith(wanted) for heading in found), wanted
    assert PLACEHOLDER.search(text) is None


def test_the_empty_template_has_the_same_headings(make_run: Maker) -> None:
    text = (make_run(ordinary()).report() / "card.md").read_text()
    template = (ROOT / "data_cards/TEMPLATE.md").read_text()
    ours = [h for h in headings(text.split("---\n", 2)[2]) if not h.startswith("Dataset Card for")]
    theirs = [h for h in headings(template.split("---\n", 2)[2]) if not h.startswith("Dataset Card for")]
    assert ours == theirs


def test_no_text_of_the_corpus_and_no_broken_table(make_run: Maker) -> None:
    made = make_run(hostile(), name="made", sources={"web": {"paths": ["x"], "description": "a|b\n<i>c</i>",
                    "license": "MIT", "attribution": "`A` | *B*"}})  # fmt: skip
    text = (made.report() / "card.md").read_text()
    assert "alert(" not in text and "<script>" not in text and "<i>c" not in text and "\u202e" not in text
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    assert len(tables) > 2
    for table in tables:
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1, table


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["MIT"], ["mit"]),
        (["Apache-2.0", "CC-BY-SA-4.0"], ["apache-2.0", "cc-by-sa-4.0"]),
        (["GPL-3.0-or-later"], ["gpl-3.0"]),
        (["Public domain", None], ["other", "unknown"]),
        (["MIT AND Zlib"], ["other"]),
    ],
)
def test_licences_as_the_hub_names_them(given: list[str | None], wanted: list[str]) -> None:
    assert licences({"sources": [{"license": name} for name in given]}) == wanted


def test_rare_and_unknown_languages_are_not_promised(make_run: Maker) -> None:
    facts = make_run(ordinary()).figures()
    facts["totals"]["kept"] = 1000
    facts["languages"] = [
        {"language": code, "documents": n, "kept": n, "kept_bytes": n}
        for code, n in (("en", 900), ("und", 80), ("fr", 9), ("zh-Hant", 50), ("de", 11))
    ]
    assert front_matter(facts)["language"] == ["de", "en"]


def test_size_category(make_run: Maker) -> None:
    facts = make_run(ordinary()).figures()
    for kept, name in ((0, "n<1K"), (1000, "1K<n<10K"), (10**12, "n>1T")):
        facts["totals"]["kept"] = kept
        assert front_matter(facts)["size_categories"] == [name]


def test_the_card_is_written_where_the_recipe_says(make_run: Maker, tmp_path: Path) -> None:
    elsewhere = tmp_path / "cards/made.md"
    made = make_run(ordinary(), report={"card": str(elsewhere)})
    folder = made.report()
    assert elsewhere.read_bytes() == (folder / "card.md").read_bytes()
    assert card(made.figures()) == elsewhere.read_text()


def _add_shards(made: Any) -> None:
    shards = Folder(made.root) / "shards"
    entry = {"index_xxh3": "0", "text_bytes": 400, "ndocs": 2, "ntokens": 50, "source": "books"}
    sets = [{"split": s, "index": f"books/{s}/index.json", **entry} for s in ("train", "validation")]
    index = {
        "tokenizer": "t",
        "tokenizer_xxh3": "0",
        "vocab_size": 300,
        "eos_id": 0,
        "dtype": "uint16",
        "sets": sets,
    }
    publish_bytes(shards, "index.json", json.dumps(index).encode())
    publish_manifest(shards, "shard", [], Counts(), {})
    made.previous["shard"] = shards
