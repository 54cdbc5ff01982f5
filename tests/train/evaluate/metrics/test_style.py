"""Rules of a style guide: each on texts that keep it and texts that do not, as a prompt, and over many texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.schemas.style import Rule, StyleGuide
from corpusmill.train.data.conversations.style import prompt_of, read_guide
from corpusmill.train.evaluate.metrics.style import CHECKS, adherence, grade, satisfies, sentences
from corpusmill.train.evaluate.statistics import wilson
from tests.conftest import ROOT
from tests.train.test_commands import command

KEPT: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"max_words": 3}, ["One two-fold three.", "don't stop now"], ["one two three four"]),
    ({"min_words": 2}, ["two words"], ["one.", ""]),
    ({"max_sentences": 1}, ["One, two; three.", "Pi is 3.14."], ["One. Two.", "Really?! Yes."]),
    ({"forbidden": ["well", "of course"]}, ["swell wells"], ["Well, no", "No, OF COURSE."]),
    ({"required": ["yes", "no"]}, ["No."], ["known", "yesterday"]),
    ({"begins_with": "Dear"}, ["  Dear you,"], ["dear you"]),
    ({"ends_with": "."}, ["So it is.\n"], ["So it is"]),
    ({"matches": r"^\d{4}-\d\d$"}, ["2026-11"], ["in 2026-11"]),
    ({"case": "lower"}, ["all of it, 7"], ["All of it"]),
    ({"case": "upper"}, ["LOUD 7!"], ["LOUd"]),
    ({"case": "sentence"}, ["One is. Two are.", "7 plus 7. Fine.", "«Élan.»"], ["one is.", "One is. two are."]),
    ({"format": "plain"}, ["just text, 3 * 4 = 12"], ["# Title", "a **bold** word", "- item", "`code`", "[a](b)"]),
    ({"format": "json"}, ['{"a": [1]}', "3"], ['{"a": }', "text", "{} {}"]),
    ({"format": "list"}, ["- one\n- two", "1. one\n\n2) two"], ["one\n- two", ""]),
    ({"max_grade": 8.0}, ["The cat sat. The dog ran."], ["Institutional considerations necessitate comprehensive reevaluation."]),
]  # fmt: skip


def rule(check: dict[str, Any]) -> Rule:
    return Rule.model_validate({"id": "one", **check})


@pytest.mark.parametrize(("check", "good", "bad"), KEPT, ids=[str(check) for check, _, _ in KEPT])
def test_rules(check: dict[str, Any], good: list[str], bad: list[str]) -> None:
    made = rule(check)
    assert [satisfies(made, text) for text in good] == [True] * len(good)
    assert [satisfies(made, text) for text in bad] == [False] * len(bad)


def test_every_kind_of_rule_is_tried() -> None:
    assert {next(iter(check)) for check, _, _ in KEPT} == set(CHECKS)


@given(st.text(max_size=60))
def test_any_text_is_judged(text: str) -> None:
    for check, _, _ in KEPT:
        assert satisfies(rule(check), text) in (True, False)


def test_reading_level_is_that_of_the_formula() -> None:
    # 5 words of 20 letters in 1 sentence: 0.0588 x 400 - 0.296 x 20 - 15.8
    assert grade("Four four four four five.") == pytest.approx(0.0588 * 400 - 0.296 * 20 - 15.8)
    assert sentences('He said "no." Then he left... Why?') == ['He said "no', "Then he left", "Why"]


def test_a_guide_is_a_prompt() -> None:
    guide = StyleGuide.model_validate(
        {
            "name": "n", "prompt": "You are brief.",
            "rules": [
                {"id": "a", "max_words": 9}, {"id": "b", "forbidden": ["so", "well"]}, {"id": "c", "case": "upper"},
                {"id": "d", "ends_with": "!", "says": "Shout."}, {"id": "e", "min_words": 2, "says": ""},
            ],
        }
    )  # fmt: skip
    assert (
        prompt_of(guide)
        == 'You are brief. Use at most 9 words. Never write "so", "well". Write in upper case. Shout.'
    )
    for check, _, _ in KEPT:  # each kind has a sentence
        assert prompt_of(StyleGuide(name="n", rules=[rule(check)])).endswith((".", '"', "$."))


def test_shares_have_intervals_and_examples(tmp_path: Path) -> None:
    guide = StyleGuide(
        name="n", rules=[rule({"max_words": 2}), rule({"ends_with": "."}).model_copy(update={"id": "stop"})]
    )
    texts = ["One two.", "one two three.", "one", "One."]
    found = adherence(guide, texts)
    assert [one.kept.value for one in found.rules] == [0.75, 0.75] and found.all_rules.value == 0.5
    assert [one.broken for one in found.rules] == [[1], [2]]
    assert (found.all_rules.low, found.all_rules.high) == pytest.approx(wilson(0.5, 4))
    file, guide_file = tmp_path / "texts.jsonl", tmp_path / "guide.yaml"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    guide_file.write_text("name: n\nrules:\n  - {id: one, max_words: 2}\n  - {id: stop, ends_with: '.'}\n")
    assert json.loads(command("style", str(guide_file), str(file), "--json")) == found.model_dump(mode="json")
    shown = command("style", str(guide_file), str(file))
    assert "n: 4 texts" in shown and "| one " in shown and "0.750 [" in shown
    file.write_text('{"answer": "x"}\n')
    with pytest.raises(UserError, match="row 1 must have a text `text`"):
        command("style", str(guide_file), str(file))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([{"id": "a"}], "rule a: has no check: give one of max_words"),
        ([{"id": "a", "max_words": 1, "case": "lower"}], "rule a: has max_words and case: give one of"),
        ([{"id": "a", "matches": "("}], "rule a: matches: no regular expression"),
        ([{"id": "a", "max_words": 1}, {"id": "a", "max_words": 2}], "two have the id a"),
        ([{"id": "a", "max_wrods": 1}], "max_wrods"),
    ],
)
def test_wrong_guides_are_named(tmp_path: Path, rules: list[dict[str, Any]], message: str) -> None:
    file = tmp_path / "guide.yaml"
    file.write_text(json.dumps({"name": "n", "rules": rules}))
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        read_guide(str(file))


def test_the_example_keeps_its_own_guide() -> None:
    """All answers that are trained on do, and none of the rejected ones."""
    guide = read_guide(str(ROOT / "examples/chat/style.yaml"))
    rows = [json.loads(line) for line in (ROOT / "examples/chat/chat.jsonl").read_text().splitlines()]
    answers = [one["content"] for row in rows for one in row["messages"] if one["role"] == "assistant"]
    assert adherence(guide, answers).all_rules.value == 1
    pairs = [json.loads(line) for line in (ROOT / "examples/chat/pairs.jsonl").read_text().splitlines()]
    assert adherence(guide, [row["chosen"][0]["content"] for row in pairs]).all_rules.value == 1
    assert adherence(guide, [row["rejected"][0]["content"] for row in pairs]).all_rules.value == 0
    held = [
        json.loads(line)["prompt"] for line in (ROOT / "examples/chat/prompts.jsonl").read_text().splitlines()
    ]
    assert not set(held) & {one["content"] for row in rows for one in row["messages"]}
