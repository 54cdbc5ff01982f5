"""Pairs, the file of ratings, and what is exported of it."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.schemas.judging import Judgement
from corpusmill.train.evaluate.judge.pairs import Model, from_file, pair_id, paired
from corpusmill.train.evaluate.judge.ratings import Ratings, latest, preferences, read
from corpusmill.train.evaluate.judge.report import report
from tests.train.evaluate.judge.made import drawn, judgement


def test_pairs_are_matched_by_prompt_and_place() -> None:
    a = Model("a", [("p", "1"), ("q", "2"), ("p", "3"), ("same", "s"), ("only", "x")])
    b = Model("b", [("same", "s"), ("p", "4"), ("p", "5"), ("q", "6"), ("q", "7")])
    found = paired(a, b)
    assert [(row.prompt, row.a, row.b) for row in found.rows] == [
        ("p", "1", "4"),
        ("q", "2", "6"),
        ("p", "3", "5"),
    ]
    assert found.same == 1 and len(paired(a, b, most=2).rows) == 2
    assert found.alone == (1, 1) and found.repeated == 0
    again = paired(Model("a", [*a.texts, ("q", "2")]), Model("b", [("q", "6"), *b.texts, ("q", "6")]))
    assert len(again.rows) == 3 and again.repeated == 1
    assert again.notes() == [
        "1 pair of equal texts is left out",
        "1 text of a and 2 texts of b have no partner with the same prompt and are left out",
        "1 pair that occurs again is left out",
    ]
    turned = paired(b, a)
    assert {row.id for row in turned.rows} == {row.id for row in found.rows}
    assert pair_id("p", "1", "4") == pair_id("p", "4", "1") != pair_id("p", "1", "5")
    with pytest.raises(UserError, match="no prompt in common"):
        paired(a, Model("c", [("z", "1")]))
    with pytest.raises(UserError, match="two different models"):
        paired(a, a)


def test_files_of_texts(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    rows = [{"prompt": "a\u2028b", "text": "x\u0085y", "end": "stop"}, {"prompt": "c", "text": ""}]
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n", encoding="utf-8")
    assert from_file(file).texts == [("a\u2028b", "x\u0085y"), ("c", "")]
    file.write_text('{"prompt": "a"}\n', encoding="utf-8")
    with pytest.raises(UserError, match='line 1 is not a JSON object with a text "prompt", "text"'):
        from_file(file)


def test_ratings_outlive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "deep/ratings.jsonl"
    kept = Ratings(file)
    for choice in ("a", "b", "tie"):
        kept.add(judgement(choice, choice))
    with pytest.raises(UserError, match="another `corpusmill judge` writes to it"):
        Ratings(file)
    kept.close()
    whole = file.read_bytes()
    with file.open("ab") as end:
        end.write(judgement("a").model_dump_json().encode()[:50])
    assert [row.choice for row in read([file])] == ["a", "b", "tie"]
    again = Ratings(file)
    assert [row.choice for row in again.rows] == ["a", "b", "tie"] and file.read_bytes() == whole
    again.add(judgement("both_bad"))
    again.close()
    assert [row.choice for row in read([file, file])] == ["a", "b", "tie", "both_bad"] * 2
    file.write_bytes(whole + b'{"pair": 1}\n')
    with pytest.raises(UserError, match="ratings.jsonl: line 4: not a Judgement: pair"):
        Ratings(file)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "ratings.jsonl"
    kept = Ratings(file)
    kept.add(judgement("a", "1"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 50, limits[1]))
    try:
        for _ in range(2):
            with pytest.raises(WorkError, match=r"ratings.jsonl: cannot be written"):
                kept.add(judgement("b", "2"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(kept.rows) == 1 == len(read([file]))
    kept.add(judgement("b", "2"))
    kept.close()
    assert [row.choice for row in read([file])] == ["a", "b"] and file.read_bytes().count(b"\n") == 2


def test_a_later_rating_replaces_the_rater_s_earlier_one() -> None:
    rows = [judgement("a", "1"), judgement("b", "2"), judgement("b", "1"), judgement("a", "1", rater="other")]
    assert [(row.prompt, row.choice, row.rater) for row in latest(rows)] == [
        ("1", "b", "r"), ("2", "b", "r"), ("1", "a", "other"),
    ]  # fmt: skip
    assert report(rows).replaced == 1


def test_preferences_are_those_of_most_raters() -> None:
    rows = [judgement("a", "1", rater=name) for name in "rst"]
    rows += [judgement("b", "1", rater="u"), judgement("a", "2"), judgement("b", "2", rater="s")]
    rows += [judgement("tie", "3"), judgement("b", "3", rater="s"), judgement("both_bad", "4")]
    turned = judgement("a", "5")
    swapped = turned.model_copy(
        update={
            "a": "y",
            "b": "x",
            "text_a": turned.text_b,
            "text_b": turned.text_a,
            "rater": "s",
            "choice": "b",
        }
    )
    found = [one.model_dump() for one in preferences([*rows, turned, swapped])]
    assert found == [
        {"prompt": "1", "chosen": "1 by x", "rejected": "1 by y"},
        {"prompt": "3", "chosen": "3 by y", "rejected": "3 by x"},
        {"prompt": "5", "chosen": "5 by x", "rejected": "5 by y"},
    ]


def test_the_report_counts_and_finds() -> None:
    rows = drawn({"x": 0.0, "y": 1.5}, 60)
    rows += [row.model_copy(update={"rater": "copy"}) for row in rows[:20]]
    found = report(rows)
    [one] = found.comparisons
    assert (one.a, one.b, one.ratings) == ("x", "y", 80) and one.ratings == one.wins_a + one.wins_b + one.ties
    assert one.win_rate.value == pytest.approx((one.wins_a + one.ties / 2) / 80)
    assert one.win_rate.clusters == 60 and one.win_rate.method == "agresti-min"
    assert (
        found.agreement.pairs == 20
        and found.agreement.alpha is not None
        and found.agreement.alpha.value == 1.0
    )
    assert any(line.startswith("y is preferred to x") for line in found.findings)
    # All stood with their first model on the left.
    assert found.left is not None and found.left.value == pytest.approx(
        one.wins_a / (one.wins_a + one.wins_b)
    )
    assert any(line.startswith("position bias") for line in found.findings)
    even = report(drawn({"x": 0.0, "y": 0.0}, 60, seed=2))
    assert any("no difference beyond chance" in line for line in even.findings)


def same_texts(choice: str, other: str, rater: str, prompt: str, weights: str | None = None) -> Judgement:
    """A rating of `x` against another model whose texts are those of `y`."""
    given = judgement(choice, prompt, rater=rater)
    return given.model_copy(update={"b": other, "weights_b": weights})


def test_ratings_of_equal_texts_by_several_models_are_all_counted() -> None:
    """Two models may have the same texts, decoded greedily or empty: A-B and A-C are two comparisons, not one that was changed. Raters
    who choose the same texts agree, whatever models these are of."""
    choices = ["a", "b", "a", "tie", "b", "a"] * 2
    rows = [
        same_texts(choice, other, rater, str(number))
        for number, choice in enumerate(choices)
        for rater, others in (("r", "yz"), ("s", "zy"))
        for other in others
    ]
    found = report(rows)
    assert found.replaced == 0 and found.ratings == 48 and found.pairs == 24
    assert [(one.a, one.b, one.ratings) for one in found.comparisons] == [("x", "y", 24), ("x", "z", 24)]
    assert found.agreement.pairs == 12
    assert found.agreement.alpha is not None and found.agreement.alpha.value == 1.0
    assert len(preferences(rows)) == 10  # a pair of texts once, whichever models they are of


def test_versions_of_a_model_are_counted_apart() -> None:
    rows = [same_texts("a", "y", "r", str(n), "0123456789abcdef") for n in range(5)]
    rows += [same_texts("b", "y", "r", str(n), "fedcba9876543210") for n in range(5)]
    found = report(rows)
    assert found.replaced == 0
    assert [(one.b, one.wins_a) for one in found.comparisons] == [("y (01234567)", 5), ("y (fedcba98)", 0)]
    assert any(line.startswith("y: ratings of 2 versions of its weights") for line in found.findings)
    assert report(rows[:5]).comparisons[0].b == "y"


def test_models_that_are_not_connected_are_said_to_be() -> None:
    rows = drawn({"a": 0.0, "b": 0.1}, 30) + drawn({"c": 0.0, "d": 0.1}, 30)
    found = report(rows)
    assert found.groups == [["a", "b"], ["c", "d"]] and not found.scores
    assert any("no rating compares models of different groups: a, b; c, d" in line for line in found.findings)
    assert not any("only won" in line for line in found.findings)
