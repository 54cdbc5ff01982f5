"""The presets `code` and `short` through the whole stage: what they remove, whatever the partitions, and with an index."""

from __future__ import annotations

import ast
import inspect
import json
import random
import re
import textwrap
from pathlib import Path

import pytest
from pydantic import ValidationError

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import banding
from corpusmill.pipeline.dedup.signatures import metadata
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.pipeline.text import preset_shingles
from corpusmill.schemas.dedup import PRESETS, DedupParams
from tests.pipeline.dedup.helpers import Doc, Result, dedup


def functions() -> list[str]:
    """Files that are not alike: some functions of the standard library each."""
    modules = [textwrap, ast, inspect, json.decoder, json.encoder, re, random]
    files = []
    for module in modules:
        found = [
            part
            for _, part in inspect.getmembers(module, inspect.isfunction)
            if part.__module__ == module.__name__
        ]
        sources = [textwrap.dedent(inspect.getsource(part)) for part in found[:12]]
        files.append("\n\n".join(sources))
    return [file for file in files if len(file) > 1500]


class _Names(ast.NodeTransformer):
    """Every variable, argument and function by another name."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(f"{node.id[::-1]}_1", node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(f"{node.arg[::-1]}_1", node.annotation), node)


def copied(source: str) -> str:
    """Other names, no comments, another format, functions in another order."""
    tree = _Names().visit(ast.parse(source))
    random.Random(3).shuffle(tree.body)
    return "# Copyright nobody\n" + ast.unparse(tree)


SHORT = [
    ("Your parcel arrives tomorrow between nine and eleven", "YOUR PARCEL ARRIVES TOMORROW, between nine and eleven 🎉 https://t.co/abc1"),
    ("We meet at the station at 18:30, platform 4", "we meet at the station at 19:45 platform 7"),
    ("Recurrent networks for sequence labelling", "Recurent networks for sequence labelling"),
    ("call me when you get home tonight", "when you get home tonight call me"),
]  # fmt: skip
LONELY = ["the cat sat on the mat", "please bring the blue folder", "ok", "okay then", "😂😂", "@anna"]


def code_docs() -> list[Doc]:
    files = functions()
    return [Doc(text, f"{n}.py") for n, text in enumerate(files)] + [
        Doc(copied(text), f"{n}-copy.py") for n, text in enumerate(files[:4])
    ]


def short_docs() -> list[Doc]:
    pairs = [text for pair in SHORT for text in pair]
    return [Doc(text, f"{n}") for n, text in enumerate([*pairs, *LONELY])]


def removed(result: Result, docs: list[Doc]) -> set[frozenset[str]]:
    """Names of the documents of each removal."""
    names = {doc.id: doc.name for doc in docs}
    return {frozenset((names[gone], names[row["duplicate_of"]])) for gone, row in result.removed.items()}


def test_copies_of_code_with_other_names_go_and_other_code_stays(tmp_path: Path) -> None:
    docs = code_docs()
    found = dedup(Folder(tmp_path), docs, preset="code", max_source_loss=1.0)
    assert removed(found, docs) == {frozenset((f"{n}.py", f"{n}-copy.py")) for n in range(4)}
    quality = json.loads(found.read("quality.json"))
    assert quality["measured"]["precision"]["disagree"] == 0
    words = dedup(Folder(tmp_path / "words"), docs, max_source_loss=1.0)
    assert not words.removed


def test_edits_of_short_texts_are_found_and_others_stay(tmp_path: Path) -> None:
    docs = short_docs()
    found = dedup(Folder(tmp_path), docs, preset="short", max_source_loss=1.0)
    assert removed(found, docs) == {frozenset((str(2 * n), str(2 * n + 1))) for n in range(len(SHORT))}
    assert json.loads(found.read("quality.json"))["measured"]["precision"]["disagree"] == 0


@pytest.mark.parametrize(
    ("preset", "docs"), [("code", code_docs()), ("short", short_docs())], ids=["code", "short"]
)
def test_partitions_order_and_index_change_nothing(preset: str, docs: list[Doc], tmp_path: Path) -> None:
    params = {"preset": preset, "max_source_loss": 1.0, "planted": 0}
    whole = dedup(Folder(tmp_path / "a"), docs, **params)
    cut = dedup(Folder(tmp_path / "b"), docs, 4, reverse=True, shuffle=5, **params)
    assert whole.removed.keys() == cut.removed.keys()
    assert whole.read("clusters.parquet") == cut.read("clusters.parquet")
    index = str(tmp_path / "index")
    half = len(docs) // 2
    first = dedup(Folder(tmp_path / "c"), docs[:half], index=index, **params)
    second = dedup(Folder(tmp_path / "d"), docs[half:], index=index, **params)
    changes = parse_table(second.read("changes.parquet")).to_pylist()
    later = {row["doc_id"] for row in changes if row["change"] == "removed"}
    assert first.removed.keys() | second.removed.keys() | later == whole.removed.keys()


def test_a_preset_sets_what_is_not_given_and_its_banding_is_solved() -> None:
    code, short = DedupParams(preset="code"), DedupParams(preset="short")
    assert (code.ngram, code.similarity, code.shingle) == (8, 0.6, "word")
    assert (short.ngram, short.similarity, short.shingle) == (3, 0.65, "char")
    assert DedupParams(preset="code", similarity=0.9, ngram=6).ngram == 6
    assert DedupParams.model_validate(code.model_dump()) == code
    for params in (code, short):
        assert banding(params).found(params.similarity) >= params.recall
        assert metadata(params, 8)["rule"] == preset_shingles.RULES[params.preset]
    assert PRESETS.keys() == preset_shingles.RULES.keys()
    for wrong in ({"preset": "code", "shingle": "char"}, {"preset": "short", "shingle": "word"}):
        with pytest.raises(ValidationError, match="has shingles of its own"):
            DedupParams.model_validate(wrong)
    with pytest.raises(ValidationError, match="'corpusmill', 'code', 'short' or 'datatrove'"):
        DedupParams.model_validate({"preset": "source"})
