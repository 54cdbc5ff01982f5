"""The shipped bias tasks keep with their items what the bias figures are computed from."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

from corpusmill.schemas.evaluation import Item
from corpusmill.train.evaluate.fairness.items import measured
from corpusmill.train.evaluate.tasks.data import Row
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.render import Renderer
from tests.train.evaluate.fairness import made

Rows = list[dict[str, Any]]


def items(task: str, rows: Rows) -> list[Item]:
    """The items of a shipped task with log-probabilities drawn at random, as its file in evaluation/items has them."""
    found = Renderer(find_task(task).task).render([Row(n, row) for n, row in enumerate(rows)], len(rows))
    assert not found.skipped
    drawn = made.random_logprobs(len(found.questions), max(len(one.texts) for one in found.questions))
    answered = [
        Item(
            id=one.id, cluster=one.cluster, slices=one.slices, prompt=one.prompt, choices=one.texts,
            logprobs=own[: len(one.texts)].tolist(), gold=one.golds[0], golds=one.golds, fields=one.fields, metrics={},
        )
        for one, own in zip(found.questions, drawn, strict=True)
    ]  # fmt: skip
    return [Item.model_validate_json(item.model_dump_json()) for item in answered]


def winobias_rows(kind: str) -> Rows:
    """Two sentences, each with both pronouns, in one of the two forms of the data."""
    rows: Rows = []
    for side, pronouns in (("pro", ("he", "she")), ("anti", ("she", "he"))):
        for person, other, pronoun in zip(("developer", "nurse"), ("nurse", "guard"), pronouns, strict=True):
            words = f"The {person} thanked the {other} because {pronoun} was late .".split()
            row: dict[str, Any] = {"hub_config": f"{kind}_{side}", "tokens": words}
            rows.append({**row, "coreference_clusters": ["0", "1", "6", "6"]})
    return rows


def test_crows_pairs(data_dir: Path) -> None:
    found = measured(items("crows_pairs", made.crows_rows(data_dir)[:300]))
    assert found and found.kind == "crows_pairs" and found.items == 300
    assert {"age", "gender", "direction: stereo", "direction: antistereo"} <= set(found.slices)


def test_bbq(data_dir: Path) -> None:
    found = measured(items("bbq", made.bbq_rows(data_dir)[:300]))
    assert found and found.kind == "bbq" and found.items == 300
    assert {"amb_bias_score", "disamb_bias_score"} <= set(found.overall)


def test_winogender(data_dir: Path) -> None:
    with (data_dir / "evalsets/winogender/all_sentences.tsv").open(encoding="utf-8", newline="") as lines:
        found = measured(items("winogender", list(csv.DictReader(lines, delimiter="\t"))))
    assert found and found.kind == "winogender" and found.items == 720


def test_winobias_as_the_hub_has_it_is_paired() -> None:
    asked = items("winobias", [*winobias_rows("type1"), *winobias_rows("type2")])
    found = measured(asked)
    assert found and found.kind == "winobias" and set(found.slices) == {"type1", "type2"}
    gap = found.slices["type2"]["pro_minus_anti"].estimate
    assert gap.n == 2  # pairs: unpaired there are four sentences
    assert asked[0].cluster == asked[2].cluster != asked[1].cluster  # the versions of a sentence


def test_winobias_as_published_with_its_type() -> None:
    rows = [
        {"text": f"{n} [The developer] thanked the nurse because [{word}] was late.", "type": f"type1_{side}"}
        for n, (word, side) in enumerate((("he", "pro"), ("she", "anti")), 1)
    ]
    found = measured(items("winobias", rows))
    assert found and found.slices["type1"]["pro_minus_anti"].estimate.n == 1
    # Without a type there is nothing to compare.
    assert measured(items("winobias", [{"text": row["text"]} for row in rows])) is None


def test_crows_pairs_without_the_direction(data_dir: Path) -> None:
    rows = made.crows_rows(data_dir)[:40]
    rows = [{name: row[name] for name in row if name != "stereo_antistereo"} for row in rows]
    found = measured(items("crows_pairs", rows))
    assert found and "direction: unknown" in found.slices


def test_bbq_as_parquet_has_it(data_dir: Path) -> None:
    """Every struct has all names: a category without a field of another one has null there."""
    text = gzip.decompress((data_dir / "evalsets/bbq/bbq_every_4th.jsonl.gz").read_bytes()).decode()
    rows = [json.loads(line) for line in text.splitlines()[:20]]
    for row in rows:
        row["additional_metadata"]["corr_ans_aligns_race"] = None
    assert measured(items("bbq", rows)) is not None
