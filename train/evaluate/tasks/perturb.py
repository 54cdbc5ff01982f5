"""Questions with their own text perturbed, and prompts in other formats: tasks made of tasks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.perturb import Perturbation
from corpusmill.train.evaluate.tasks.render import Question
from corpusmill.train.evaluate.tasks.run import Prepared

LABEL = re.compile(
    r"^([A-Z][A-Za-z ]{0,24}?):(?= |$)", re.MULTILINE
)  # such as `Question:` at the start of a line
SEPARATORS = (":", " :", " -", ": ", " =", "::", "\n")
ENDS = ("\n", "\n\n", " \n", " || ", "; ")
CASES: dict[str, Callable[[str], str]] = {"": str, "upper": str.upper, "lower": str.lower}


def perturbed(prepared: Prepared, by: Perturbation, seed: int = 0, choices: bool = False) -> Prepared:
    """A task whose questions have their own text changed, not the description or the examples; with `choices` the choices too.

    The same item has the same change under any model. Raises `UserError` for a task that scores whole texts.
    """
    if prepared.task.output_type == "loglikelihood_rolling":
        raise UserError(
            f"{prepared.task.task}: scores the text itself, of which perturbed text has another one: name a task with questions"
        )
    return prepared._replace(questions=[_perturbed(one, by, seed, choices) for one in prepared.questions])


def _perturbed(one: Question, by: Perturbation, seed: int, choices: bool) -> Question:
    def change(text: str, what: str) -> str:
        return by.apply(text, f"{one.id}\0{what}", seed)

    found = one
    if len(set(one.contexts)) > 1:  # choices are contexts, each after what all share
        starts = [change(context[len(one.prompt) :], "question") for context in one.contexts]
        found = one._replace(contexts=[one.prompt + start for start in starts])
    elif one.own:
        own = change(one.own, "question")
        prompt = one.prompt[: len(one.prompt) - len(one.own)] + own
        found = one._replace(own=own, prompt=prompt, contexts=[prompt] * len(one.contexts))
    if choices and len(one.continuations) > 1:
        texts = [change(text, f"choice {number}") for number, text in enumerate(one.texts)]
        before = [
            whole[: len(whole) - len(text)] for whole, text in zip(one.continuations, one.texts, strict=True)
        ]
        found = found._replace(texts=texts, continuations=[a + b for a, b in zip(before, texts, strict=True)])
    return found


class Format(NamedTuple):
    """How a prompt's labels and lines look: what stands behind a label, what ends a line, the case of labels."""

    separator: str = ":"
    end: str = "\n"
    case: str = ""

    @property
    def name(self) -> str:
        parts = [
            f"label{self.separator!r}",
            f"line{self.end!r}",
            *([f"{self.case} labels"] if self.case else []),
        ]
        return "as it is" if self == Format() else ", ".join(parts)

    def apply(self, prompt: str) -> str:
        """The prompt in this format; its words stay the same."""
        made = LABEL.sub(lambda found: CASES[self.case](found[1]) + self.separator, prompt)
        return made.replace("\n", self.end)


def formats(prepared: Prepared, count: int, seed: int = 0) -> list[tuple[Format, Prepared]]:
    """The task as it is and in up to `count` - 1 other formats, drawn by `seed`, of which each changes some prompt. Raises `UserError`
    for a task whose prompts have neither labels nor lines."""
    every = [Format(a, b, c) for a in SEPARATORS for b in ENDS for c in CASES]
    random.Random(seed).shuffle(every)
    found, seen = list[tuple[Format, Prepared]](), set[tuple[str, ...]]()
    for one in [Format(), *(one for one in every if one != Format())]:
        made = [_formatted(question, one) for question in prepared.questions]
        prompts = tuple(question.prompt for question in made)
        if prompts not in seen and len(found) < count:
            seen.add(prompts)
            found.append((one, prepared._replace(questions=made)))
    if len(found) < 2:
        raise UserError(
            f"--formats: the prompts of {prepared.task.task} have no label as `Question:` and no second line: leave the task out"
        )
    return found


def _formatted(one: Question, by: Format) -> Question:
    prompt = by.apply(one.prompt)
    contexts = [prompt + context[len(one.prompt) :] for context in one.contexts]
    return one._replace(prompt=prompt, contexts=contexts)
