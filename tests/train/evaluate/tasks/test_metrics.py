"""Metrics of an item, from their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.schemas.tasks import Filter, Metric, Step, Task
from corpusmill.train.evaluate.tasks.metrics import (
    CHOICE_METRICS,
    Choices,
    choice_metrics,
    comparable,
    filtered,
    text_metrics,
)

THREE = Choices(["a", "bbbb", "éé"], [-2.0, -4.0, -3.0], [True, False, False], [2], [-1.0, -6.0, -2.0])


def test_each_metric_of_choices() -> None:
    wanted = {
        "acc": 0.0,  # -2 is the highest sum
        "acc_norm": 0.0,  # -2/1, -4/4, -3/2
        "acc_bytes": 1.0,  # -2/1, -4/4, -3/4
        "acc_mutual_info": 0.0,  # -1, 2, -1
        "exact_match": 0.0,
        "brier_score": (math.exp(0) ** 2 + math.exp(-2) ** 2 + (math.exp(-2) + 1) ** 2)
        / (1 + math.exp(-2) + math.exp(-1)) ** 2,
        "gold_logprob_per_byte": -3.0 / 4,
    }
    for name, value in wanted.items():
        assert CHOICE_METRICS[name](THREE) == pytest.approx(value), name
    pair = Choices(["x", "y"], [-1.5, -2.0], [False, False], [0])
    assert CHOICE_METRICS["likelihood_diff"](pair) == 0.5 and CHOICE_METRICS["pct_stereotype"](pair) == 1.0


def test_any_of_several_right_choices_counts() -> None:
    several = THREE._replace(golds=[1, 0])
    assert CHOICE_METRICS["acc"](several) == 1.0 and CHOICE_METRICS["exact_match"](several) == 1.0


@given(st.lists(st.floats(-50, 0), min_size=2, max_size=6, unique=True), st.randoms())
def test_the_order_of_choices_changes_nothing(sums: list[float], random: object) -> None:
    texts = [chr(97 + n) * (n + 1) for n in range(len(sums))]
    order = sorted(range(len(sums)), key=lambda n: hash((n, str(random))))
    one = Choices(texts, sums, [False] * len(sums), [0], sums[::-1])
    other = Choices(
        [texts[n] for n in order], [sums[n] for n in order], one.greedy, [order.index(0)], [one.unconditional[n] for n in order]
    )  # fmt: skip
    for name in ("acc", "acc_norm", "acc_bytes", "brier_score", "gold_logprob_per_byte", "exact_match"):
        assert CHOICE_METRICS[name](one) == pytest.approx(CHOICE_METRICS[name](other)), name


def test_one_continuation() -> None:
    task = Task(
        task="t",
        output_type="loglikelihood",
        doc_to_target="x",
        metric_list=[Metric(metric="perplexity"), Metric(metric="acc")],
    )
    found = choice_metrics(task, Choices([" ab"], [-6.0], [True], [0]))
    assert found == {"loglikelihood": -6.0, "acc": 1.0}


def test_exact_match_and_its_settings() -> None:
    metric = Metric(
        metric="exact_match",
        ignore_case=True,
        ignore_punctuation=True,
        regexes_to_ignore=[",", r"(?s).*#### "],
    )
    assert comparable(metric, "steps\n#### 1,234. ") == "1234"
    task = Task(task="t", doc_to_target="x", metric_list=[metric])
    assert text_metrics(task, " The Cat! ", ["dog", "the cat"]) == {"exact_match": 1.0}
    assert text_metrics(task, "cats", ["dog", "the cat"]) == {"exact_match": 0.0}


def test_filters() -> None:
    strict = Step(function="regex", regex_pattern=r"#### (\-?[0-9\.\,]+)")
    flexible = Step(function="regex", group_select=-1, regex_pattern=r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
    text = "It is 12 and 7 of 3"
    assert filtered(text, [strict]) == "[invalid]" and filtered("#### 42 x", [strict]) == "42"
    assert filtered(text, [flexible]) == "3" and filtered("none", [flexible]) == "[invalid]"
    assert filtered(" A b\n", [Step(function="remove_whitespace"), Step(function="lowercase")]) == "a b"
    filters = [Filter(name="strict", filter=[strict]), Filter(name="last", filter=[flexible])]
    task = Task(task="t", doc_to_target="x", filter_list=filters)
    assert text_metrics(task, text, ["3"]) == {"exact_match,strict": 0.0, "exact_match,last": 1.0}


def test_squad_compares_words() -> None:
    task = Task(
        task="t", doc_to_target="x", metric_list=[Metric(metric="squad_exact"), Metric(metric="squad_f1")]
    )
    found = text_metrics(task, "the big Apple.", ["apple", "a big apple"])
    assert found == {"squad_exact": 1.0, "squad_f1": 1.0}
    assert text_metrics(task, "big pear", ["apple", "a big apple"]) == {"squad_exact": 0.0, "squad_f1": 0.5}
