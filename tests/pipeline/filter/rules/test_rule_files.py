from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common.errors import UserError
from corpusmill.pipeline.filter.apply import Filtering
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.rules.rule_files import load_file
from corpusmill.pipeline.filter.rules.sets import line_rules, resolve, rule_set
from corpusmill.schemas.filter import FilterParams, rule_sets
from tests.conftest import ROOT
from tests.pipeline.filter.helpers import PROSE, apply, documents, stage, without_models

OWN = """
name: mine
origin: me
rules:
  - {name: words_min, signal: gopher.word_count, at_least: 3}
lines:
  - {name: shouting, value: uppercase_ratio, more_than: 0.5}
  - {name: menu, phrases: [log in, sign up], most_words: 4}
  - {name: dash, pattern: '^-+$'}
  - {name: unfinished, ends_in: ["...", "…"]}
"""


def own(folder: Path, text: str = OWN, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", rule_sets())
def test_every_set_that_ships_loads_and_looks_at_signals_that_are_measured(name: str, tmp_path: Path) -> None:
    loaded = rule_set(name)
    assert loaded.name == name
    assert loaded.rules or loaded.lines or loaded.include
    words = tmp_path / "words.txt"
    words.write_text("word\n")
    given = FilterParams.model_validate(
        {
            **without_models(rules=[name]),
            "word_lists": {"c4_badwords": [str(words)]}, "urls": {"hard_words": [str(words)]}, "toxicity": {},
        }
    )  # fmt: skip
    models = {"toxicity": fasttext_model.shipped(fasttext_model.SHIPPED["toxicity"])}
    Filtering(given, resolve(given), models)  # raises for a signal that nothing measures


def test_a_set_of_the_users_own_by_its_path(tmp_path: Path) -> None:
    path = own(tmp_path)
    given = FilterParams(
        rules=["gopher_quality", path], thresholds={"mine.words_min": 5, "mine.shouting": 0.9}
    )
    names = [rule.name for rule in resolve(given)]
    assert names.index("mine.words_min") > names.index("gopher_quality.stop_words_min")
    assert {rule.name: rule.threshold for rule in resolve(given)}["mine.words_min"] == 5
    lines = line_rules(given)["mine"]
    assert [(rule.name, rule.threshold) for rule in lines][:2] == [
        ("mine.shouting", 0.9),
        ("mine.menu", None),
    ]
    disabled = given.model_copy(update={"disable": ["mine.menu", "mine.dash"]})
    assert [rule.name for rule in line_rules(disabled)["mine"]] == ["mine.shouting", "mine.unfinished"]


def test_a_set_of_the_users_own_judges(tmp_path: Path) -> None:
    path = own(tmp_path)
    outcome = apply(documents([PROSE, "two words"]), **without_models(rules=[path]))
    assert [(row["rule"], row["value"], row["threshold"]) for row in outcome.decisions.to_pylist()] == [
        ("mine.words_min", 2, 3)
    ]
    assert outcome.signals is not None and "mine.cut_words_ratio" in outcome.signals.column_names


def test_the_content_of_a_file_is_in_the_key(tmp_path: Path) -> None:
    path = own(tmp_path)
    before = stage(rules=[path]).key_params()
    own(tmp_path, OWN.replace("^-+$", "^=+$"))
    after = stage(rules=[path]).key_params()
    assert before["lines"] != after["lines"] and before["rules"] == after["rules"]


def test_an_included_set_is_judged_before_and_keeps_its_name(tmp_path: Path) -> None:
    path = own(tmp_path, "name: mine\norigin: me\ninclude: [fineweb, c4]\n")
    names = [
        rule.set_name for rule in resolve(FilterParams(rules=["c4", path], language=None, toxicity=None))
    ]
    assert list(dict.fromkeys(names)) == ["c4", "fineweb"]
    with pytest.raises(UserError, match="include: 'finewb' is not a rule set; did you mean 'fineweb'"):
        resolve(FilterParams(rules=[own(tmp_path, "name: mine\norigin: me\ninclude: [finewb]\n")]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name: mine", "name: c4"), "'c4' is taken by the sets that ship"),
        (("name: mine", "name: lines"), "'lines' is taken"),
        (("name: mine", "name: Mine!"), "name: string should match pattern"),
        (("phrases: [log in, sign up]", "pattern: '('"), "not a regular expression of RE2: missing )"),
        (("phrases: [log in, sign up]", "pattern: 'a(?=b)'"), "not a regular expression of RE2"),
        (("phrases: [log in, sign up]", r"pattern: 'a\C'"), r"\C is a byte"),
        (("phrases: [log in, sign up]", "phrases: [' ']"), "an empty text is in every line"),
        (("phrases: [log in, sign up]", "phrases: []"), "at least 1 item"),
        (("value: uppercase_ratio", "value: upercase_ratio"), "did you mean 'uppercase_ratio'?"),
        (("value: uppercase_ratio, more_than: 0.5", "value: words"), "`value` wants exactly one of"),
        (('ends_in: ["...", "…"]', "ends_in: [x], pattern: y"), "give exactly one of value, phrases"),
        (('ends_in: ["...", "…"]', "ends_in: [x], cut: match"), "`cut: match` goes with"),
        (('ends_in: ["...", "…"]', "ends_in: [x], where: end"), "`where` goes with `phrases`"),
        (("name: dash", "name: menu"), "a name appears twice"),
        (("name: dash", "name: words_min"), "a name appears twice"),
        (("most_words: 4", "most_words: 0"), "greater than or equal to 1"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_names_it(
    change: tuple[str, str], message: str, tmp_path: Path
) -> None:
    assert change[0] in OWN
    path = own(tmp_path, OWN.replace(*change))
    with pytest.raises(UserError) as error:
        resolve(FilterParams(rules=[path]))
    assert message in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    text = (ROOT / "docs/filtering.md").read_text(encoding="utf-8")
    block = next(part for part in text.split("```") if part.startswith("yaml\nname: mine"))
    path = own(tmp_path, block.removeprefix("yaml\n"))
    outcome = apply(
        documents([PROSE + "\n\n12 likes\nLog in\n"]), **without_models(rules=[path], cut_lines=True)
    )
    assert outcome.kept["text"].to_pylist() == [PROSE + "\n"]
    kinds = [edit["kind"] for edit in outcome.decisions.to_pylist()[0]["edits"]]
    assert kinds == ["mine.counter", "mine.menu"]


def test_a_signal_that_nothing_measures_is_reported_with_the_nearest(tmp_path: Path) -> None:
    path = own(tmp_path, OWN.replace("gopher.word_count", "gopher.word_cout"))
    with pytest.raises(
        UserError, match="'gopher.word_cout' is not measured; did you mean 'gopher.word_count'"
    ):
        apply(documents([PROSE]), **without_models(rules=[path]))


def test_a_signal_that_two_of_a_recipe_would_measure_is_reported(tmp_path: Path) -> None:
    """Sets, lists of words and plugins name their own signals; `@` is `_` there."""
    sets = [
        own(tmp_path, OWN.replace("name: mine", f"name: {name}"), f"{name}.yaml") for name in ("a@b", "a_b")
    ]
    words, plugin = tmp_path / "words.txt", tmp_path / "signals.py"
    words.write_text("word\n")
    plugin.write_text(
        "from corpusmill.pipeline.filter.signals.registry import signal\n"
        'signal("a_b.cut_lines_ratio", "", "me", "int")(lambda view: view.words)\n'
        'signal("my.listed_words", "", "me", "int")(lambda view: view.words)\n'
    )
    for given, twice in (
        ({"rules": sets}, "a_b.cut_lines_ratio"),
        ({"rules": sets[1:], "plugins": [str(plugin)]}, "a_b.cut_lines_ratio"),
        ({"word_lists": {"my": [str(words)]}, "plugins": [str(plugin)]}, "my.listed_words"),
    ):
        with pytest.raises(UserError, match=f"signal '{twice}' would be measured twice") as error:
            apply(documents([PROSE]), **without_models(**given))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
def test_a_threshold_is_a_finite_number(number: str, tmp_path: Path) -> None:
    """Nothing compares with what is no number: every document would go."""
    path = own(tmp_path, OWN.replace("at_least: 3", f"at_least: {number}"))
    with pytest.raises(UserError, match=r"rules\.0\.at_least: must be a finite number"):
        resolve(FilterParams(rules=[path]))
    with pytest.raises(ValueError, match="finite number"):
        FilterParams.model_validate({"thresholds": {"c4.sentences_min": float(number.replace(".", ""))}})


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none.yaml: no such file"):
        resolve(FilterParams(rules=[str(tmp_path / "none.yaml")]))
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file in UTF-8"):
        load_file(str(tmp_path / "b.yaml"))
    first, second = own(tmp_path), own(tmp_path, name="again.yaml")
    with pytest.raises(UserError, match="'mine' is taken by .*mine.yaml"):
        resolve(FilterParams(rules=[first, second]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rules": ["c4_badwords"]}, "filter.word_lists.c4_badwords: missing"),
        ({"rules": ["url"]}, "filter.urls: missing"),
        ({"rules": ["toxic_sentences"], "toxicity": None}, "filter.toxicity: null"),
        ({"thresholds": {"c4.javascript": 1}}, "'c4.javascript' is not a rule"),
        ({"disable": ["c4.javascrpt"]}, "did you mean 'c4.javascript'?"),
    ],
)
def test_what_a_recipe_must_give_and_may_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as error:
        resolve(FilterParams.model_validate(given))
    assert message in str(error.value) and "\n" not in str(error.value)
