"""From rows to questions: the text before each choice, examples included, the choices, and which of them are right. Texts are equal
to those of lm-evaluation-harness 0.4.13."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.schemas.tasks import Task
from corpusmill.train.evaluate.tasks.data import Row
from corpusmill.train.evaluate.tasks.templates import SHOWN, Damaged, Templates


class Question(NamedTuple):
    """What is asked of a model. Choice i is `continuations[i]` after `contexts[i]`; both end in what is scored. `texts`: by whose
    lengths scores are normalised."""

    id: str
    cluster: str
    slices: dict[str, str]
    fields: dict[str, Any]
    prompt: str  # that all choices share
    own: str  # what of it is the item's own
    contexts: list[str]
    continuations: list[str]
    texts: list[str]
    golds: list[int]
    references: list[str]


class Rendered(NamedTuple):
    """Questions in the order of their rows, and why other rows gave none."""

    questions: list[Question]
    skipped: Counter[str]


class Renderer:
    """Makes questions of the rows of a task. Raises `UserError` for a template that cannot be compiled."""

    def __init__(self, task: Task, examples: Sequence[Row] = (), where: str = "") -> None:
        self.task = task
        self.templates = Templates(where or task.task)
        choices = task.doc_to_choice if isinstance(task.doc_to_choice, list) else [task.doc_to_choice or ""]
        groups = {
            "doc_to_text": [task.doc_to_text], "doc_to_choice": choices, "description": [task.description],
            "doc_to_target": [task.doc_to_target] if isinstance(task.doc_to_target, str) else [],
            "id": [task.id], "cluster": [task.cluster or ""], "fewshot_config.group": [task.fewshot_config.group or ""],
            "columns": task.columns.values(), "slices": task.slices.values(), "fields": task.fields.values(),
        }  # fmt: skip
        for key, templates in groups.items():
            for template in templates:
                self.templates.compile(key, template)
        given = [Row(number, dict(row)) for number, row in enumerate(task.fewshot_config.samples)]
        self.examples = list(examples) or given
        self._turns: dict[int, str] = {}  # of examples, by number

    def render(self, rows: Sequence[Row], total: int, limit: int | None = None) -> Rendered:
        """Questions of all rows, or of `limit` of them, spread evenly over the data's `total` places: always the same ones."""
        chosen = set(even(total, limit)) if limit is not None else None
        picker = Picker(self, rows)
        found, skipped = list[Question](), Counter[str]()
        taken = set[str]()
        for row in rows:
            wanted = chosen is None or row.number in chosen
            if not wanted and not self.task.num_fewshot:
                continue
            try:
                columns = self.columns(row)
                # Drawn for each row, whether it is asked or not: a question is the same for any limit.
                examples = picker.of(row, columns, wanted)
                if not wanted:
                    continue
                question = self.question(columns, examples)
                if question.id in taken:
                    raise Damaged("id: an earlier row has the same one")
            except Damaged as reason:
                if wanted:
                    skipped[str(reason)] += 1
                continue
            taken.add(question.id)
            found.append(question)
        return Rendered(found, skipped)

    def columns(self, row: Row) -> dict[str, Any]:
        """The columns of a row, `row_number`, and what the task adds."""
        found = {"row_number": row.number, **row.columns}
        for name, template in self.task.columns.items():
            found[name] = self.templates.column(f"columns.{name}", template, found)
        return found

    def question(self, columns: dict[str, Any], examples: str) -> Question:
        """The question of a row, `examples` being the text of the examples before it."""
        task, templates = self.task, self.templates
        prompt = templates.label("description", task.description, columns) + examples
        contexts, texts, golds, references, own = [prompt], list[str](), list[int](), list[str](), ""
        if task.output_type == "schema":
            starts, answer = self.choices(columns), self.target(columns)
            golds = [self.right_context(columns, len(starts))]
            contexts, own = [prompt + start for start in starts], starts[golds[0]] + answer
            continuations = [task.target_delimiter + answer] * len(starts)
            texts = [answer] * len(starts)
        else:
            own = templates.label("doc_to_text", task.doc_to_text, columns)
            prompt += own
            if task.output_type == "multiple_choice":
                texts = self.choices(columns)
                golds = self.golds(columns, texts)
                continuations = [task.target_delimiter + text for text in texts]
            elif task.output_type == "loglikelihood":
                texts = continuations = [self.target(columns)]
                golds = [0]
            elif task.output_type == "loglikelihood_rolling":
                texts = continuations = [self.target(columns)]
                golds, prompt = [0], ""
            else:
                continuations, references = [], self.references(columns)
            contexts = [prompt] * len(continuations)
        if len(texts) != 2 and (task.wants("likelihood_diff") or task.wants("pct_stereotype")):
            raise Damaged("doc_to_choice: likelihood_diff and pct_stereotype compare two choices")
        identity = str(templates.column("id", task.id, columns))
        return Question(
            id=identity,
            cluster=str(templates.column("cluster", task.cluster, columns)) if task.cluster else identity,
            slices={name: str(templates.column(f"slices.{name}", t, columns)) for name, t in task.slices.items()},
            fields={name: templates.column(f"fields.{name}", t, columns) for name, t in task.fields.items()},
            prompt=prompt, own=own, contexts=contexts, continuations=continuations, texts=texts, golds=golds,
            references=references,
        )  # fmt: skip

    def example(self, row: Row) -> str:
        """A row with its answer, as it stands before questions."""
        if row.number not in self._turns:
            task, columns = self.task, self.columns(row)
            if task.output_type == "schema":
                starts = self.choices(columns)
                text, answer = starts[self.right_context(columns, len(starts))], self.target(columns)
            else:
                text = self.templates.label("doc_to_text", task.doc_to_text, columns)
                if task.output_type == "multiple_choice":
                    choices = self.choices(columns)
                    answer = choices[self.golds(columns, choices)[0]]
                elif task.output_type == "loglikelihood":
                    answer = self.target(columns)
                else:
                    answer = self.references(columns)[0]
            turn = f"{text}{task.target_delimiter}{answer}{task.fewshot_delimiter}" if answer else text
            self._turns[row.number] = turn
        return self._turns[row.number]

    def choices(self, columns: dict[str, Any]) -> list[str]:
        given = self.task.doc_to_choice
        if isinstance(given, list):
            return [self.templates.text("doc_to_choice", template, columns) for template in given]
        found = self.templates.value("doc_to_choice", given or "", columns)
        if not isinstance(found, list) or not found or not all(isinstance(text, str) for text in found):
            raise Damaged("doc_to_choice: gives no list of texts")
        return found

    def golds(self, columns: dict[str, Any], choices: list[str]) -> list[int]:
        """Numbers of the right choices."""
        target = self.task.doc_to_target
        templated = isinstance(target, str) and target not in columns
        found = self.templates.value("doc_to_target", target, columns) if isinstance(target, str) else target
        several = found if isinstance(found, list) else [found]
        numbers = [place(value, choices, digits_first=templated) for value in several]
        if not numbers or any(number is None for number in numbers):
            raise Damaged("doc_to_target: names none of the choices")
        return [number for number in numbers if number is not None]

    def right_context(self, columns: dict[str, Any], count: int) -> int:
        """Of a schema: the number of the right context."""
        found = self.templates.label("doc_to_text", self.task.doc_to_text, columns).strip()
        if not found.isdecimal() or int(found) >= count:
            raise Damaged("doc_to_text: is not the number of a context")
        return int(found)

    def target(self, columns: dict[str, Any]) -> str:
        """The text of `doc_to_target`."""
        found = self.templates.label("doc_to_target", str(self.task.doc_to_target), columns)
        if not found:
            raise Damaged("doc_to_target: is empty")
        return found

    def references(self, columns: dict[str, Any]) -> list[str]:
        """Right texts, for a generated one."""
        found = self.templates.value("doc_to_target", str(self.task.doc_to_target), columns)
        several = found if isinstance(found, list) else [found]
        if not several or not all(isinstance(one, str | int | float) for one in several):
            raise Damaged("doc_to_target: gives no text")
        return [str(one) for one in several]


class Picker:
    """Chooses the examples of each question: of rows of their own, or of the other rows of the data."""

    def __init__(self, renderer: Renderer, rows: Sequence[Row]) -> None:
        self.renderer, self.wanted = renderer, renderer.task.fewshot_config
        self.count = renderer.task.num_fewshot
        self.own = not renderer.examples
        self._pools: dict[str, list[Row]] = {}
        self._generators: dict[str, random.Random] = {}
        for row in (renderer.examples or rows) if self.count else ():
            try:
                self._pools.setdefault(self.group(row), []).append(row)
            except Damaged:
                continue  # counted where it is a question; an example of no group is none

    def group(self, row: Row, columns: dict[str, Any] | None = None) -> str:
        template = self.wanted.group
        if not template:
            return ""
        columns = self.renderer.columns(row) if columns is None else columns
        return str(self.renderer.templates.column("fewshot_config.group", template, columns))

    def of(self, row: Row, columns: dict[str, Any], wanted: bool) -> str:
        """The text of the examples before a row; of one that is not `wanted` they are drawn only."""
        if not self.count:
            return ""
        group = self.group(row, columns)
        drawn = self.drawn(row, self._pools.get(group, []), group)
        if len(drawn) < self.count:
            whose = f" of {group[:SHOWN]}" if group else ""
            raise Damaged(f"too few examples{whose}: {len(drawn)}, and num_fewshot is {self.count}")
        return "".join(map(self.example, drawn)) if wanted else ""

    def drawn(self, row: Row, pool: list[Row], group: str) -> list[Row]:
        """Examples of the pool, or all of it if it has too few."""
        others = (one for one in pool if not self.own or one.columns != row.columns)
        if self.wanted.sampler == "first_n":
            return list(islice(others, self.count))
        generator = self._generators.setdefault(group, random.Random(self.wanted.seed))
        if not self.own:
            return generator.sample(pool, min(self.count, len(pool)))
        # One more than needed, as in lm-evaluation-harness, for the case that the row is among them.
        some = generator.sample(pool, min(self.count + 1, len(pool)))
        found = [one for one in some if one.columns != row.columns][: self.count]
        if len(found) == self.count:
            return found
        left = list(others)
        return generator.sample(left, min(self.count, len(left)))

    def example(self, row: Row) -> str:
        try:
            return self.renderer.example(row)
        except Damaged as reason:
            if self.own:
                raise Damaged(f"an example before it: {reason}") from None
            raise UserError(f"{self.renderer.task.task}: examples: row {row.number + 1}: {reason}") from None


def place(value: Any, choices: list[str], digits_first: bool) -> int | None:
    """The number of a choice that is given by number or by its text."""
    if isinstance(value, str):
        number = int(value) if value.isdecimal() and value.isascii() else None
        if number is not None and (digits_first or value not in choices):
            value = number
        else:
            return choices.index(value) if value in choices else None
    if not isinstance(value, int) or not 0 <= value < len(choices):
        return None
    return int(value)


GOLDEN = 0x9E3779B97F4A7C15  # 2^64 times the golden ratio, odd


def even(total: int, limit: int) -> list[int]:
    """`limit` places spread evenly over `total`, or all, in ascending order. Those of a lower limit are among them, so that models that
    were asked other numbers of questions can be compared on the lowest (steps by the golden ratio, Knuth 1973, section 6.4)."""
    found, number = set[int](), 0
    while len(found) < min(total, limit):
        found.add((number * GOLDEN % 2**64) * total >> 64)
        number += 1
    return sorted(found)
