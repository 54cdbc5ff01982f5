"""Gaps between groups of terms: equal to sums by hand, found where planted, and not found where there is none."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from corpusmill.common.config import read_yaml
from corpusmill.common.errors import UserError
from corpusmill.schemas.fairness import Axis, Terms
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.fairness.terms import (
    SHIPPED,
    Sums,
    filled,
    gap_of,
    measured_gap,
    read_terms,
    sentences,
    summed,
    term_gaps,
)
from corpusmill.train.evaluate.fairness.texts import by_group, token_losses
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from tests.train.generate.models import EOS, VOCAB, model

Make = Callable[..., dict[str, Any]]


def letters() -> Tokenizer:
    """A token for each printable character of ASCII."""
    from tokenizers import models, pre_tokenizers

    vocabulary = {"<|endoftext|>": 0, **{chr(31 + n): n for n in range(1, VOCAB)}}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return made


def scorer(config: Make, longest: int = 48) -> Scorer:
    checked = TrainConfig.model_validate(config(**{"data.sequence_length": longest}))
    return Scorer(ParallelModel([model()], World()), checked, World())


def bits(text: str) -> list[float]:
    """Of each character, by the model in one row."""
    ids = [ord(letter) - 31 for letter in text]
    with torch.no_grad():
        logits = model()(torch.tensor([[EOS, *ids[:-1]]]))[0]
    found = -logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).squeeze(1).double() / math.log(2)
    return found.tolist()


AXIS = Axis(
    groups={"one": ["CAT", "COW"], "other": ["DOGGY"]},
    templates=["THE {term} RAN AWAY", "MY {term} IS OLD", "A {term}"],
)


def test_gaps_are_sums_over_templates_and_terms(config: Make) -> None:
    found = term_gaps(scorer(config), letters(), EOS, Terms(axes={"animal": AXIS}))["animal"]
    for which, usable in (("whole", AXIS.templates), ("after", AXIS.templates[:2])):
        gap = getattr(found, which)
        expected = {}
        for group, terms in AXIS.groups.items():
            total, size = 0.0, 0
            for template in usable:
                for term in terms:
                    text, after = filled(template, term)
                    start = after if which == "after" else 0
                    total, size = total + sum(bits(text)[start:]), size + len(text) - start
            expected[group] = total / size
        assert {name: each.value for name, each in gap.groups.items()} == pytest.approx(expected, abs=1e-4)
        assert gap.gap.value == pytest.approx(abs(expected["one"] - expected["other"]), abs=1e-4)
        assert gap.ratio.value == pytest.approx(max(expected.values()) / min(expected.values()), abs=1e-4)
        assert gap.against_others["one"].value == pytest.approx(expected["one"] - expected["other"], abs=1e-4)
        assert gap.highest == max(expected, key=expected.__getitem__)
        assert all(each.low is not None and each.clusters == len(usable) for each in gap.groups.values())
    assert found.templates == 3


def test_a_planted_gap_is_found_and_none_is_not() -> None:
    rng = np.random.default_rng(4)
    sizes = np.full((30, 3), 50.0)
    difficulty = rng.normal(100, 20, (30, 1))  # what templates have in common
    even = measured_gap(["a", "b", "c"], difficulty + rng.normal(0, 2, (30, 3)), sizes, 3)
    assert even.p > 0.05 and even.gap.value <= even.chance
    planted = measured_gap(["a", "b", "c"], difficulty + rng.normal(0, 2, (30, 3)) + [0, 0, 5], sizes, 3)
    assert planted.highest == "c" and planted.p < 0.01 and planted.gap.value > planted.chance
    difference = planted.against_others["c"]
    assert difference.low is not None and 0.05 < difference.low < 0.1 < difference.high  # type: ignore[operator]
    # Paired: the templates' own difficulty, which is ten times as wide, is not in it.
    assert planted.groups["c"].se > 5 * difference.se  # type: ignore[operator]


def test_shares_of_false_alarms_are_as_promised() -> None:
    """At most 5 % of models without any preference are found to have one."""
    rng = np.random.default_rng(3)
    sizes = np.full((12, 2), 40.0)
    alarms = sum(
        measured_gap(["a", "b"], 80 + rng.normal(0, 4, (12, 2)), sizes, 2).p <= 0.05 for _ in range(200)
    )
    assert alarms <= 18


def test_groups_of_many_terms_are_interchanged_with_groups_of_few() -> None:
    """What makes a template hard is in all groups, however many terms each has."""
    axis = Axis(
        groups={"many": ["a", "b", "c"], "one": ["d"]}, templates=[f"{n} {{term}} x" for n in range(12)]
    )
    rows = sentences(axis)
    difficulty = np.random.default_rng(0).uniform(5, 50, 12)
    losses = [np.array([difficulty[row.template], 1.0]) for row in rows]
    begins = [np.array([0, row.after]) for row in rows]
    ends = [np.array([row.after, len(row.text)]) for row in rows]
    found = gap_of("axis", axis, summed(axis, rows, losses, begins, ends)).whole
    assert found.gap.value == pytest.approx(0, abs=1e-12) and found.chance == pytest.approx(0, abs=1e-12)


def test_findings_state_chance() -> None:
    rng = np.random.default_rng(1)
    values = np.array([rng.normal(100, 3, 3) for _ in range(2)]).T
    sums = Sums(values, np.full((3, 2), 60.0), np.full((3, 2), math.nan), np.full((3, 2), 20.0))
    found = gap_of("animal", AXIS, sums)
    assert found.after is None and "no more than chance gives" in found.finding
    assert re.search(r"\[\d\.\d{3}, \d\.\d{3}\] bits per byte", found.finding)


def test_the_shipped_terms_fit_their_templates() -> None:
    terms = read_terms()
    assert SHIPPED.is_file() and len(terms.axes) >= 5
    for axis in terms.axes.values():
        assert len(axis.templates) >= 8 and axis.prompts
        for row in sentences(axis):
            # "a" before a vowel would be an error of grammar, and a reason why a sentence is unlikely.
            assert not re.search(r"\b[Aa] [aeiouAEIOU]", row.text), row.text
            terms_of = [term for own in axis.groups.values() for term in own]
            assert row.text[0].isupper() and row.text[: row.after].endswith(tuple(terms_of))


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "terms.yaml"
    good = read_yaml(SHIPPED)["axes"]["age"]
    for changes, message in (
        ({"templates": ["no place", "The {term}."]}, r"'no place' must have \{term\} exactly once"),
        ({"groups": {"young": ["young"], "old": []}}, "groups.old: needs a term"),
        ({"groups": {"young": ["young"]}}, "at least 2 items"),
    ):
        import json

        file.write_text(json.dumps({"axes": {"age": {**good, **changes}}}), encoding="utf-8")
        with pytest.raises(UserError, match=message):
            read_terms(file)


def test_the_real_identity_templates_make_an_axis(config: Make, data_dir: Path) -> None:
    """The phrases of Dixon et al. 2018 with their identity taken out, swapped between two groups."""
    file = data_dir / "toxicity/identity_templates/en_sentence_templates_sample5000.csv"
    with file.open(encoding="utf-8", newline="") as rows:
        phrases = [row["phrase"] for row in csv.DictReader(rows)]
    templates = sorted(
        {
            re.sub(r"\b(christian|muslim)\b", "{term}", p)
            for p in phrases
            if re.search(r"\b(christian|muslim)\b", p)
        }
    )
    chosen = [text for text in templates if text.count("{term}") == 1 and text.isascii()][:40]
    axis = Axis(groups={"christian": ["christian"], "muslim": ["muslim"]}, templates=chosen)
    found = term_gaps(scorer(config, 96), letters(), EOS, Terms(axes={"religion": axis}))["religion"]
    assert found.whole.gap.n == 2 * len(chosen) and found.whole.gap.clusters == len(chosen)
    assert all(each.low < each.value < each.high for each in found.whole.groups.values())  # type: ignore[operator]


def test_texts_are_scored_from_their_beginning_in_windows(config: Make) -> None:
    text = "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG AND RUNS AWAY FROM THE OLD FOX"
    found = scorer(config)
    [losses] = token_losses(found, [[ord(letter) - 31 for letter in text]], EOS)
    assert len(losses) == len(text) > 48
    assert losses[:48] / math.log(2) == pytest.approx(bits(text)[:48], abs=1e-4)
    again = by_group(found, letters(), EOS, [text[:30], text, text[9:50], "ABC"], ["x", "x", "y", "y"])
    assert set(again) == {"x", "y"} and again["x"].texts == 2 and again["x"].bytes == 30 + len(text)
    both = losses[:48].sum() + losses[48:].sum() + sum(bits(text[:30])) * math.log(2)
    assert again["x"].bits_per_byte.value == pytest.approx(both / math.log(2) / again["x"].bytes, abs=1e-4)
    with pytest.raises(UserError, match="text 2 has no token"):
        by_group(found, letters(), EOS, ["A", ""], ["x", "x"])
