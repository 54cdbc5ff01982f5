"""Rows as prompts, choices and right answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.schemas.tasks import Task
from corpusmill.train.evaluate.tasks.data import Row
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.render import Question, Renderer, even, place
from corpusmill.train.evaluate.tasks.templates import Damaged, Templates

WORKER = "The construction worker thanked the nurse because he was late ."
CHOICE = {
    "task": "t",
    "output_type": "multiple_choice",
    "doc_to_text": "Q: {{q}}",
    "doc_to_choice": "c",
    "doc_to_target": "g",
}
GOOD: dict[str, dict[str, Any]] = {
    "bbq": {"example_id": 1, "category": "Age", "question_index": "1", "context": "C", "question": "Q", "ans0": "A", "ans1": "B",
            "ans2": "Unknown", "label": 2, "context_condition": "ambig", "question_polarity": "neg", "answer_info":
            {"ans0": ["a", "old"], "ans1": ["b", "nonOld"], "ans2": ["u", "unknown"]}, "additional_metadata": {"stereotyped_groups": ["old"]}},
    "hellaswag": {"activity_label": "X", "ctx": "He", "endings": ["a", "b"], "label": "0"},
    "winobias": {"text": "1 [The baker] paid the nurse since [she] asked."},
    "winogender": {"sentid": "baker.guest.0.male.txt", "sentence": "The baker informed the guest that he left."},
    "winogrande": {"sentence": "A _ b", "option1": "x", "option2": "y", "answer": "1"},
    "arc_easy": {"id": "1", "question": "Q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"},
    "mmlu": {"question": "Q", "subject": "", "choices": ["a", "b", "c", "d"], "answer": 0},
    "squad": {"id": "1", "title": "T", "context": "C", "question": "Q", "answers": {"text": ["a"]}},
    "lambada": {"text": "a b"},
}  # fmt: skip


def rows(*columns: dict[str, Any]) -> list[Row]:
    return [Row(number, row) for number, row in enumerate(columns)]


def asked(
    keys: dict[str, Any], *columns: dict[str, Any], examples: list[Row] | None = None
) -> list[Question]:
    found = Renderer(Task.model_validate(keys), examples or []).render(rows(*columns), len(columns))
    assert not found.skipped
    return found.questions


def numbered(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"q": f"q{n}", "c": ["yes", "no"], "g": n % 2, **more} for n in range(count)]


def test_choices_after_a_prompt() -> None:
    (one,) = asked({**CHOICE, "description": "D\n\n"}, {"q": "x", "c": ["a", "b c"], "g": 1})
    assert (
        one.contexts == ["D\n\nQ: x"] * 2
        and one.continuations == [" a", " b c"]
        and one.texts == ["a", "b c"]
    )
    assert one.golds == [1] and one.id == one.cluster == "0" and one.prompt == "D\n\nQ: x"


@pytest.mark.parametrize(
    ("target", "golds"),
    [(1, [1]), ("g", [1]), ("{{g}}", [1]), ("b", [1]), ("{{'b'}}", [1]), ([0, 1], [0, 1]), ("{{[0, 'b']}}", [0, 1]), ("{{g == 1}}", None),
     (2, None), (-1, None), ("c d", None), ("{{[]}}", None)],
)  # fmt: skip
def test_the_right_choice_by_number_or_text(target: Any, golds: list[int] | None) -> None:
    task = Task.model_validate({**CHOICE, "doc_to_target": target})
    found = Renderer(task).render(rows({"q": "", "c": ["a", "b"], "g": 1}), 1)
    if golds is None:
        assert found.skipped == {"doc_to_target: names none of the choices": 1}
    else:
        assert found.questions[0].golds == golds


def test_digits_are_numbers_where_a_template_gives_them_and_texts_where_a_column_has_them() -> None:
    assert place("1", ["1", "2"], digits_first=True) == 1
    assert place("1", ["1", "2"], digits_first=False) == 0
    assert place("1", ["a", "b"], digits_first=False) == 1
    assert place(True, ["no", "yes"], digits_first=False) == 1


def test_examples_stand_before_the_question() -> None:
    examples = rows(*numbered(3))
    keys = {**CHOICE, "num_fewshot": 2, "fewshot_config": {"sampler": "first_n"}, "description": "D."}
    (one,) = asked(keys, {"q": "x", "c": ["a", "b"], "g": 0}, examples=examples)
    assert one.prompt == "D.Q: q0 yes\n\nQ: q1 no\n\nQ: x"


def test_drawn_examples_do_not_depend_on_the_limit_and_leave_the_row_out() -> None:
    task = Task.model_validate({**CHOICE, "num_fewshot": 3})
    data = rows(*numbered(12))
    whole = Renderer(task).render(data, 12).questions
    part = Renderer(task).render(data, 12, limit=4).questions
    assert [one.id for one in part] == ["0", "2", "7", "10"]
    assert part == [one for one in whole if one.id in {"0", "2", "7", "10"}]
    for one in whole:
        *before, own = one.prompt.split("\n\n")
        assert len(set(before)) == 3 and not any(text.startswith(own + " ") for text in before)
    assert len({one.prompt for one in whole}) == 12
    other = Renderer(
        task.model_copy(update={"fewshot_config": task.fewshot_config.model_copy(update={"seed": 1})})
    )
    assert other.render(data, 12).questions != whole


def test_examples_of_the_same_group() -> None:
    examples = rows(*numbered(4, s="one"), *numbered(3, s="two"))
    keys = {**CHOICE, "num_fewshot": 3, "fewshot_config": {"group": "s"}, "doc_to_text": "{{s}}"}
    first, second = asked(
        keys, {"c": ["a"], "g": 0, "s": "two"}, {"c": ["a"], "g": 0, "s": "one"}, examples=examples
    )
    assert first.prompt.count("two") == 4 and second.prompt.count("one") == 4
    other = Renderer(Task.model_validate(keys), examples).render(rows({"c": ["a"], "g": 0, "s": "three"}), 1)
    assert other.skipped == {"too few examples of three: 0, and num_fewshot is 3": 1}
    alone = Renderer(Task.model_validate({**CHOICE, "num_fewshot": 3})).render(rows(*numbered(2)), 2)
    assert alone.skipped == {"too few examples: 1, and num_fewshot is 3": 2}


def test_a_damaged_example_is_an_error_of_its_file() -> None:
    keys = {**CHOICE, "num_fewshot": 1}
    with pytest.raises(UserError, match="t: examples: row 1: doc_to_text: 'q' is undefined"):
        asked(keys, {"q": "x", "c": ["a"], "g": 0}, examples=rows({"c": ["a"], "g": 0}))


def test_schema_compares_contexts() -> None:
    row = {"sentence": "The _ was big.", "option1": "cup", "option2": "bag", "answer": "2"}
    (one,) = asked({**find_task("winogrande").task.model_dump(), "num_fewshot": 1}, row, examples=rows(row))
    assert one.prompt == "The bag was big.\n\n"
    assert one.contexts == [one.prompt + "The cup", one.prompt + "The bag"]
    assert one.continuations == [" was big."] * 2 and one.golds == [1]


def test_faults_are_counted_by_reason() -> None:
    task = Task.model_validate({**CHOICE, "id": "{{i}}", "slices": {"s": "subject"}})
    good = {"q": "x", "c": ["a"], "g": 0, "i": 1, "subject": "s"}
    data = rows(
        good, {**good}, {**good, "i": 2, "c": "a"}, {**good, "i": 3, "c": [1]}, {**good, "i": 4, "g": 7},
        {key: value for key, value in good.items() if key != "q"}, {key: value for key, value in good.items() if key != "subject"},
    )  # fmt: skip
    found = Renderer(task).render(data, len(data))
    assert len(found.questions) == 1
    assert found.skipped == {
        "id: an earlier row has the same one": 1,
        "doc_to_choice: gives no list of texts": 2,
        "doc_to_target: names none of the choices": 1,
        "doc_to_text: 'q' is undefined": 1,
        "slices.s: there is no column 'subject'": 1,
    }


def test_added_columns_see_those_before_them() -> None:
    keys = {**CHOICE, "columns": {"n": "{{q ~ '!'}}", "c": "{{[n, n ~ '!']}}"}, "doc_to_text": "n"}
    (one,) = asked(keys, {"q": "x", "g": 0})
    assert one.prompt == "x!" and one.texts == ["x!", "x!!"]


@pytest.mark.parametrize(
    "template", ["{{''.__class__.__mro__}}", "{{q.__init__.__globals__}}", "{{[1] * 'a'}}", "{{q | regex_replace('(', '')}}", "{{1 / 0}}",
                 "{{'\\ud800'}}", "{{gone}}"],
)  # fmt: skip
def test_templates_reach_nothing_but_the_row(template: str) -> None:
    with pytest.raises(Damaged, match="^k: "):
        Templates("t").text("k", template, {"q": "x"})


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_lists_of_any_texts_come_through_templates(texts: list[str]) -> None:
    assert Templates("t").value("k", "{{c}}", {"c": texts}) == texts


COLUMNS = [
    "question", "choices", "answer", "label", "text", "sentence", "tokens", "coreference_clusters", "sentid", "ans0", "ans1", "ans2",
    "answer_info", "additional_metadata", "question_polarity", "endings", "ctx", "activity_label", "passage", "subject", "answers", "",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=False) | st.text("a_. {['", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "label", "ans0", "aliases"]), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.parametrize("shots", [0, 1])
@pytest.mark.parametrize(
    "name",
    ["bbq", "hellaswag", "winobias", "winogender", "winogrande", "arc_easy", "mmlu", "squad", "lambada"],
)
@given(st.lists(st.dictionaries(st.sampled_from(COLUMNS), JSON, max_size=12), max_size=3))
@settings(max_examples=20)
def test_any_row_gives_a_question_or_is_counted(name: str, shots: int, columns: list[dict[str, Any]]) -> None:
    task = find_task(name).task.model_copy(update={"num_fewshot": shots})
    examples = [Row(0, GOOD[name])] if shots else []
    found = Renderer(task, examples).render(rows(*columns), len(columns))
    assert len(found.questions) + found.skipped.total() == len(columns)


@given(st.integers(0, 200), st.integers(1, 250))
def test_even_places(total: int, limit: int) -> None:
    found = even(total, limit)
    assert len(found) == len(set(found)) == min(total, limit) and found == sorted(found)
    assert all(0 <= number < total for number in found)
    assert set(even(total, limit - 1)) <= set(found)
    if found:  # no gap is more than three times as wide as equal ones would be
        gaps = [b - a for a, b in zip([0, *found], [*found, total], strict=True)]
        assert max(gaps) <= 3 * total / len(found) + 1


@pytest.mark.parametrize(
    "row", [{"text": "12 [The construction worker] thanked the nurse because [he] was late."},
            {"tokens": WORKER.split(), "coreference_clusters": ["0", "2", "7", "7"],
             "hub_config": "type1_pro"}],
)  # fmt: skip
def test_winobias_as_published_and_as_the_hub_has_it(row: dict[str, Any]) -> None:
    (one,) = asked(find_task("winobias").task.model_dump(), row)
    assert one.prompt == "The construction worker thanked the nurse because he was late. ‘He’ refers to the"
    assert one.texts == ["construction worker", "nurse"] and one.golds == [0]


def test_squad_with_and_without_an_answer() -> None:
    row = {
        "id": "1",
        "title": "T",
        "context": "C",
        "question": "Q?",
        "answers": {"text": ["a", "b"], "answer_start": [0, 1]},
    }
    none = {**row, "id": "2", "answers": {"text": [], "answer_start": []}}
    one, two = asked(find_task("squad").task.model_dump(), row, none)
    assert one.prompt == "Title: T\n\nBackground: C\n\nQuestion: Q?\n\nAnswer:"
    assert one.references == ["a", "b"] and two.references == ["unanswerable"]
    assert one.cluster == two.cluster and one.slices["answerable"] == "yes" != two.slices["answerable"]


def test_boolq_as_first_published() -> None:
    (one,) = asked(
        find_task("boolq").task.model_dump(), {"passage": "P", "question": "is it", "answer": True}
    )
    assert one.texts[one.golds[0]] == "yes"
