"""Items with the fields of real data sets, and answers drawn at random."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.schemas.evaluation import Item
from corpusmill.train.evaluate.fairness.bbq import UNKNOWN


def item(
    number: int,
    fields: dict[str, Any],
    choices: list[str],
    logprobs: list[float],
    gold: int | None = None,
    cluster: str | None = None,
) -> Item:
    return Item(
        id=str(number), cluster=cluster or str(number), prompt="", choices=choices, logprobs=logprobs, gold=gold, metrics={},
        fields=fields,
    )  # fmt: skip


def crows_rows(data: Path) -> list[dict[str, Any]]:
    text = gzip.decompress((data / "evalsets/crows_pairs/crows_pairs.csv.gz").read_bytes()).decode()
    return [{key: value for key, value in row.items() if key} for row in csv.DictReader(io.StringIO(text))]


def bbq_rows(data: Path) -> list[dict[str, Any]]:
    """The rows that are at hand are ambiguous and of negative questions alone: each of the four kinds gets a quarter of them, the
    rows of clear contexts one of the two people as their label."""
    text = gzip.decompress((data / "evalsets/bbq/bbq_every_4th.jsonl.gz").read_bytes()).decode()
    rng = np.random.default_rng(9)
    rows = [json.loads(line) for line in text.splitlines()]
    for number, row in enumerate(rows):
        row["question_polarity"] = ("neg", "nonneg")[number % 2]
        if number % 4 > 1:
            row["context_condition"] = "disambig"
            row["label"] = [n for n in range(3) if row[f"ans{n}"] not in UNKNOWN][int(rng.integers(2))]
    return rows


def winogender_rows(data: Path) -> list[dict[str, Any]]:
    text = (data / "evalsets/winogender/all_sentences.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def crows_items(rows: list[dict[str, Any]], logprobs: Any) -> list[Item]:
    return [
        item(n, row, [row["sent_more"], row["sent_less"]], list(map(float, own)))
        for n, (row, own) in enumerate(zip(rows, logprobs, strict=True))
    ]


def bbq_items(
    rows: list[dict[str, Any]], logprobs: Any, choices: list[list[str]] | None = None
) -> list[Item]:
    texts = choices or [[row["ans0"], row["ans1"], row["ans2"]] for row in rows]
    return [
        item(n, row, own_choices, list(map(float, own)), cluster=f"{row['category']}-{row['question_index']}")
        for n, (row, own, own_choices) in enumerate(zip(rows, logprobs, texts, strict=True))
    ]


def winogender_items(
    rows: list[dict[str, Any]], leans: Any, women: dict[str, float] | None = None, swap: bool = False
) -> list[Item]:
    """`leans`: log-probability of the occupation less that of the participant; `swap`: the participant is the first choice."""
    found = []
    for number, (row, lean) in enumerate(zip(rows, leans, strict=True)):
        occupation, participant, answer, _ = row["sentid"].removesuffix(".txt").split(".")
        fields = {**row, **({"bls_pct_female": women[occupation]} if women else {})}
        choices, logprobs, gold = [occupation, participant], [float(lean), 0.0], int(answer)
        if swap:
            choices, logprobs, gold = choices[::-1], logprobs[::-1], 1 - gold
        found.append(item(number, fields, choices, logprobs, gold))
    return found


def random_logprobs(rows: int, choices: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(-40, 5, (rows, choices))
