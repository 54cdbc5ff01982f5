"""Real evaluation sets against real text: their own items are found again, ordinary text is left alone."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.decontaminate import index as indexes
from corpusmill.pipeline.decontaminate.evalsets import find_files
from corpusmill.pipeline.decontaminate.matches import find_hits
from corpusmill.pipeline.decontaminate.near_matches import judge_all
from corpusmill.schemas.decontamination import EvaluationIndex
from corpusmill.schemas.stages import DecontaminateParams

pytestmark = pytest.mark.slow  # the index of four whole sets
SETS = {"gsm8k": 1319, "mmlu": 14_000, "hellaswag_val": 10_000, "blimp": 66_000}
Loaded = tuple[indexes.Index, DecontaminateParams, EvaluationIndex]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def loaded(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    params = DecontaminateParams(
        against=[str(data_dir / "evalsets" / name) for name in ("blimp", "decon_mmlu_gsm8k", "hellaswag_val")]
    )
    folder = Folder(tmp_path_factory.mktemp("real"))
    record = indexes.build(folder, "key", find_files(params.against), params)
    return indexes.load(folder, "key", params), params, record


def found_in(loaded: Loaded, texts: list[str]) -> set[int]:
    """Rows of the texts that hold an item."""
    index, params, _ = loaded
    hits = find_hits(pa.array(texts, pa.large_string()), index)
    none = np.zeros(len(index.table.keys), bool), np.zeros(len(index.seeds.unit), bool)
    judged = judge_all(*hits, index, params, *none)
    return set(judged["row"][judged["acts"]].tolist())


def test_the_sets_are_read_without_help(
    loaded: Loaded,
) -> None:
    index, _, record = loaded
    assert set(record.sets) == set(SETS)
    for name, least in SETS.items():
        counts = record.sets[name]
        assert counts.items >= least and counts.ngrams > 0
        if name != "blimp":  # its sentences are short
            assert counts.unused < 0.03 * counts.items
    assert index.bytes_per_gram < 60


def test_items_are_found_again(data_dir: Path, loaded: Loaded) -> None:
    """Each question in capitals, its line breaks moved, inside other text."""
    rows = [
        line
        for name in ("gsm8k_test-1", "mmlu_test-1")
        for line in lines(data_dir / f"evalsets/decon_mmlu_gsm8k/{name}.jsonl.gz")
    ]
    texts = {
        row["question"]: row
        for row in rows
        if row.get("is_correct", True) and len(row["question"].split()) > 13
    }
    made = [
        f"Once more:\n\n{' - '.join(q.upper().split())}\n\n{r['answer']}, he said." for q, r in texts.items()
    ]
    found = found_in(loaded, made)
    assert len(made) > 1500 and len(found) / len(made) > 0.99


def test_ordinary_text_is_left_alone(data_dir: Path, loaded: Loaded) -> None:
    posts = lines(next((data_dir / "natural/qa_stackexchange").glob("*.jsonl.gz")))
    assert found_in(loaded, [post["Body"] for post in posts]) == set()
