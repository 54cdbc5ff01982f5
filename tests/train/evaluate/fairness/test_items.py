"""Figures from items are those of a plain count, and those of lm-evaluation-harness, on real data with answers drawn at random."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from bench.peers import NotMeasured, packages
from corpusmill.common.errors import UserError
from corpusmill.train.evaluate.fairness.bbq import UNKNOWN
from corpusmill.train.evaluate.fairness.items import measured
from corpusmill.train.evaluate.statistics import wilson
from tests.train.evaluate.fairness import made

LM_EVAL = ("lm_eval==0.4.13",)


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """lm-evaluation-harness' own functions for BBQ."""
    pytest.importorskip("datasets")
    try:
        folder = packages("lm-eval", LM_EVAL)
    except NotMeasured as reason:
        pytest.skip(str(reason))
    return loaded(folder / "lm_eval/tasks/bbq/utils.py")


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("lm_eval_bbq", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_crows_pairs_by_category_is_a_plain_count(data_dir: Path) -> None:
    rows = made.crows_rows(data_dir)
    logprobs = made.random_logprobs(len(rows), 2)
    found = measured(made.crows_items(rows, logprobs))
    assert found and found.kind == "crows_pairs" and found.items == 1508 == len(rows)
    assert any("Blodgett" in note for note in found.notes)
    categories = {row["bias_type"] for row in rows}
    assert set(found.slices) == {*categories, "direction: stereo", "direction: antistereo"}
    for category in categories:
        own = np.array(
            [pair for pair, row in zip(logprobs, rows, strict=True) if row["bias_type"] == category]
        )
        share = float((own[:, 0] > own[:, 1]).mean())
        figures = found.slices[category]
        estimate = figures["pct_stereotype"].estimate
        assert estimate.value == share
        if len(own) < 300:
            ends = wilson(share, len(own))
        else:  # the interval of a mean, by Student's t
            half = float(stdtrit(len(own) - 1, 0.975)) * (share * (1 - share) / (len(own) - 1)) ** 0.5
            ends = share - half, share + half
        assert (estimate.low, estimate.high) == pytest.approx(ends, rel=1e-12)
        assert figures["likelihood_diff"].estimate.value == pytest.approx(
            np.abs(own[:, 0] - own[:, 1]).mean()
        )
        assert figures["signed_diff"].estimate.value == pytest.approx((own[:, 0] - own[:, 1]).mean())
    # Of eleven shares at chance with 95 % intervals, hardly more than two lie outside.
    assert sum(bool(figures["pct_stereotype"].beyond_chance) for figures in found.slices.values()) <= 2
    assert any(line.startswith("no preference beyond chance") for line in found.findings)


def test_crows_pairs_does_not_depend_on_the_order_of_choices(data_dir: Path) -> None:
    rows = made.crows_rows(data_dir)[:200]
    items = made.crows_items(rows, made.random_logprobs(200, 2))
    turned = [
        item.model_copy(update={"choices": item.choices[::-1], "logprobs": item.logprobs[::-1]})
        for item in items
    ]
    assert measured(items) == measured(turned)
    wrong = items[3].model_copy(update={"choices": ["x", items[3].choices[1]]})
    with pytest.raises(UserError, match="item 3: its choices are not its two sentences"):
        measured([*items[:3], wrong])


def test_a_tie_is_no_stereotype_and_a_strong_one_is_named(data_dir: Path) -> None:
    rows = [row for row in made.crows_rows(data_dir) if row["bias_type"] in ("age", "gender")]
    logprobs = [(-40.0, -41.0) if row["bias_type"] == "age" else (-40.0, -40.0) for row in rows]
    found = measured(made.crows_items(rows, logprobs))
    assert found
    assert found.slices["age"]["pct_stereotype"].estimate.value == 1.0
    assert found.slices["age"]["pct_stereotype"].beyond_chance
    assert found.slices["gender"]["pct_stereotype"].estimate.value == 0.0
    assert any(line.startswith("age: the stereotype is likelier in 1.000 [0.9") for line in found.findings)
    assert found.findings[-1] == (
        "not corrected for their number: of 4 figures without any preference about 0.2 are beyond chance as well"
    )


@pytest.mark.parametrize("ways", [3, 12])
def test_bbq_equals_lm_eval_on_random_answers(data_dir: Path, harness: ModuleType, ways: int) -> None:
    """With the data's three answers and with all ways to say that it is unknown."""
    rows = made.bbq_rows(data_dir)
    docs = [process(harness, row) for row in rows]
    # The harness always has 12 choices: the two answers first, then ways to say unknown.
    wide = made.random_logprobs(len(rows), 12, seed=ways)
    if ways == 3:
        wide[:, 2:] = -1000.0
        for row, doc, own in zip(rows, docs, wide, strict=True):
            unknown = next(row[f"ans{n}"] for n in range(3) if row[f"ans{n}"] in UNKNOWN)
            own[harness.doc_to_choice(doc).index(unknown)] = own.max() + (-1) ** int(own.sum()) * 3
    choices = [list(harness.doc_to_choice(doc)) for doc in docs]
    scores = [
        harness.process_results_multiple_choice(doc, [(value, False) for value in own])
        for doc, own in zip(docs, wide, strict=True)
    ]
    if ways == 3:  # what we are given has the three answers alone
        own_choices = [[row["ans0"], row["ans1"], row["ans2"]] for row in rows]
        given = [
            [own[names.index(answer)] for answer in three]
            for own, names, three in zip(wide, choices, own_choices, strict=True)
        ]
        found = measured(made.bbq_items(rows, given, own_choices))
    else:
        found = measured(made.bbq_items(rows, wide, choices))
    assert found and found.kind == "bbq" and found.items == 2989

    def theirs(name: str) -> Any:
        return [score[name] for score in scores]

    overall = {key: figure.estimate.value for key, figure in found.overall.items()}
    assert overall == {
        "accuracy_amb": pytest.approx(harness.agg_accuracy_amb(theirs("accuracy_amb"))),
        "accuracy_disamb": pytest.approx(harness.agg_accuracy_disamb(theirs("accuracy_disamb"))),
        "amb_bias_score": pytest.approx(harness.agg_amb_bias_scores(theirs("amb_bias_score"))),
        "disamb_bias_score": pytest.approx(harness.agg_disamb_bias_scores(theirs("disamb_bias_score"))),
    }
    for category, figures in found.slices.items():
        mine = [n for n, row in enumerate(rows) if row["category"] == category]
        part = [scores[n]["amb_bias_score"] for n in mine]
        for name, aggregate in (
            ("amb", harness.agg_amb_bias_scores),
            ("disamb", harness.agg_disamb_bias_scores),
        ):
            estimate = figures[f"{name}_bias_score"].estimate
            assert estimate.value == pytest.approx(aggregate(part))
            assert estimate.low is not None and estimate.high is not None
            assert estimate.low <= estimate.value <= estimate.high
    assert set(found.slices) == {row["category"] for row in rows}


def process(harness: ModuleType, row: dict[str, Any]) -> dict[str, Any]:
    """A row with what the harness adds to it."""

    class One:
        def map(self, function: Any) -> Any:
            return function(dict(row))

    result: dict[str, Any] = harness.process_docs(One())
    return result


def test_bbq_of_a_stereotyping_an_unbiased_and_a_guessing_model(data_dir: Path) -> None:
    from corpusmill.train.evaluate.fairness.bbq import biased_answers

    rows = made.bbq_rows(data_dir)
    biased = [[1.0 if row[f"ans{n}"] in biased_answers(row) else 0.0 for n in range(3)] for row in rows]
    found = measured(made.bbq_items(rows, biased))
    assert found
    # Always the stereotype: wrong wherever the context is ambiguous, so that both scores are 1 (but for rows without such an answer).
    assert (
        found.overall["amb_bias_score"].estimate.value > 0.97
        and found.overall["accuracy_amb"].estimate.value < 0.03
    )
    assert found.overall["disamb_bias_score"].estimate.value > 0.97
    assert any("answers with the stereotype" in line for line in found.findings)
    assert any(line.startswith("not corrected for their number: of ") for line in found.findings)
    right = [[1.0 if n == row["label"] else 0.0 for n in range(3)] for row in rows]
    found = measured(made.bbq_items(rows, right))
    assert found and found.overall["amb_bias_score"].estimate.value == 0.0
    assert found.overall["accuracy_disamb"].estimate.value == 1.0
    found = measured(made.bbq_items(rows, made.random_logprobs(len(rows), 3)))
    assert found and found.overall["accuracy_amb"].chance == pytest.approx(1 / 3)
    assert sum("is no better than guessing (0.333)" in line for line in found.findings) == 2


def test_winogender_by_gender_and_against_the_share_of_women(data_dir: Path) -> None:
    rows = made.winogender_rows(data_dir)
    occupations = sorted({row["sentid"].split(".")[0] for row in rows})
    women = {name: 100 * n / (len(occupations) - 1) for n, name in enumerate(occupations)}
    rng = np.random.default_rng(1)

    def lean(row: dict[str, Any]) -> float:
        occupation, _, _, gender, _ = row["sentid"].split(".")
        sign = {"female": 1, "male": -1, "neutral": 0}[gender]
        return float(sign * (women[occupation] - 50) / 50 + rng.normal(0, 0.3))

    leans = [lean(row) for row in rows]
    found = measured(made.winogender_items(rows, leans, women))
    assert found and found.kind == "winogender" and found.items == 720
    right = [
        (value > 0) == (row["sentid"].split(".")[2] == "0") for value, row in zip(leans, rows, strict=True)
    ]
    assert found.overall["accuracy"].estimate.value == pytest.approx(np.mean(right))
    for gender in ("female", "male", "neutral"):
        own = [r for r, row in zip(right, rows, strict=True) if row["sentid"].split(".")[3] == gender]
        estimate = found.overall[f"accuracy_{gender}"].estimate
        assert (estimate.value, estimate.n) == (pytest.approx(np.mean(own)), 240)
    # A pronoun that is rare in the occupation leans away from it: a model that goes by the share is wrong there.
    gotcha = found.overall["accuracy_gotcha"].estimate
    assert gotcha.n == 60 * 2 and gotcha.value < 0.2
    correlation = found.overall["correlation"]
    assert correlation.estimate.value > 0.95 and correlation.beyond_chance
    one = found.slices[occupations[3]]["female_minus_male"].estimate
    by = {row["sentid"]: value for row, value in zip(rows, leans, strict=True)}
    own = [
        by[name] - by[name.replace(".female.", ".male.")]
        for name in by
        if name.startswith(f"{occupations[3]}.") and ".female." in name
    ]
    assert one.value == pytest.approx(np.mean(own)) and one.n == 4
    assert measured(made.winogender_items(rows, leans, women, swap=True)) == found
    assert measured(made.winogender_items(rows, leans), women) == found


def test_winogender_at_chance_says_so(data_dir: Path) -> None:
    rows = made.winogender_rows(data_dir)
    found = measured(made.winogender_items(rows, np.random.default_rng(5).normal(size=len(rows))))
    assert found and "correlation" not in found.overall and "accuracy_gotcha" not in found.overall
    assert any("is no better than guessing (0.50)" in line for line in found.findings)
    assert any("does not differ beyond chance" in line for line in found.findings)


def wino(number: int, kind: str, right: bool, **more: Any) -> Any:
    return made.item(number, {"type": kind, **more}, ["a", "b"], [0.0, -1.0 if right else 1.0], 0)


@pytest.mark.parametrize("paired", [True, False])
def test_winobias_pro_minus_anti(paired: bool) -> None:
    rng = np.random.default_rng(2)
    items, rights = [], {}
    for kind in ("type1", "type2"):
        for number in range(50):
            for side, share in (("pro", 0.9), ("anti", 0.4)):
                right = bool(rng.random() < share)
                rights[kind, side, number] = right
                items.append(
                    wino(len(items), f"{kind}_{side}", right, **({"pair": number} if paired else {}))
                )
    found = measured(items)
    assert found and found.kind == "winobias" and set(found.slices) == {"type1", "type2"}
    for kind in ("type1", "type2"):
        pro, anti = (np.mean([rights[kind, side, n] for n in range(50)]) for side in ("pro", "anti"))
        gap = found.slices[kind]["pro_minus_anti"].estimate
        assert gap.value == pytest.approx(pro - anti)
        assert gap.low is not None and gap.low > 0 and gap.n == (50 if paired else 100)
    assert any(line.startswith("all: more often right where") for line in found.findings)


def test_other_tasks_have_no_bias_figures_and_incomplete_items_are_refused() -> None:
    plain = made.item(0, {"ctx": "x"}, ["a", "b"], [0.0, 1.0], 0)
    assert measured([]) is None and measured([plain]) is None
    assert measured([made.item(0, {"type": "bridge"}, ["a", "b"], [0.0, 1.0], 0)]) is None
    unscored = wino(0, "type1_pro", True).model_copy(update={"logprobs": []})
    with pytest.raises(UserError, match="winobias: item 0 has no log-probabilities"):
        measured([unscored])
