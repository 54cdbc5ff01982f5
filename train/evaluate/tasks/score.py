"""Questions scored by a model: items, with log-probabilities of choices or with generated texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from corpusmill.common.task_progress import advance
from corpusmill.schemas.evaluation import Item
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.tasks import Generation, Task
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.scorer import Answer
from corpusmill.train.evaluate.tasks.encode import Encoder
from corpusmill.train.evaluate.tasks.metrics import Choices, choice_metrics, text_metrics, text_sums
from corpusmill.train.evaluate.tasks.render import Question
from corpusmill.train.generate.generate import Opened, texts

QUERIES = 1024  # that are scored in one call, between two reports of progress

TOO_LONG = "a choice has more tokens than the model has positions"
NO_TOKEN = "a choice has no token of its own"
Answers = Callable[[Sequence[Query]], list[Answer]]


class Scored(NamedTuple):
    """Items, why other questions were not scored, and what a reader must know."""

    items: list[Item]
    skipped: Counter[str]
    notes: list[str]


class Asked(NamedTuple):
    """A question with its choices as token ids, and those of its choices alone, if they are needed."""

    question: Question
    queries: list[Query]
    alone: list[Query]


def score_choices(
    task: Task, questions: Sequence[Question], encoder: Encoder, answers: Answers, longest: int
) -> Scored:
    """Items of a task whose choices are compared, or whose one continuation is scored. `longest`: positions of the model."""
    items, skipped, cut = list[Item](), Counter[str](), 0
    for part in parts(asked(task, questions, encoder, longest)):
        fit = fitting(part, longest, skipped)
        if not fit:
            continue
        found = iter(answers([query for one in fit for query in (*one.queries, *one.alone)]))
        for one in fit:
            cut += any(len(q.context) + len(q.continuation) - 1 > longest for q in one.queries)
            given = [next(found) for _ in one.queries]
            alone = [next(found).sum for _ in one.alone]
            item = choice_item(task, one.question, given, alone)
            items.append(item.model_copy(update={"core": core(task, one, given)}))
        advance(len(fit))
    return Scored(items, skipped, shortened(cut, len(items)))


def score_rolling(
    task: Task, questions: Sequence[Question], encoder: Encoder, answers: Answers, longest: int
) -> Scored:
    """Items of a task whose whole texts are scored."""
    items, skipped = list[Item](), Counter[str]()
    for part in parts(asked(task, questions, encoder, longest)):
        fit = fitting(part, longest, skipped)
        given = iter(answers([query for one in fit for query in one.queries]) if fit else [])
        for one in fit:
            windows = [next(given) for _ in one.queries]
            tokens = np.concatenate([answer.tokens for answer in windows])
            whole = Answer(tokens, all(answer.greedy for answer in windows))
            items.append(choice_item(task, one.question, [whole], []))
        advance(len(part))
    scored = f"{task.stride} tokens at a time after the first" if task.stride else "without overlap"
    return Scored(items, skipped, [f"texts are read in windows of {longest} tokens, {scored}"])


def asked(task: Task, questions: Sequence[Question], encoder: Encoder, longest: int) -> Iterator[Asked]:
    """The questions as token ids."""
    if task.output_type == "loglikelihood_rolling":
        for one in questions:
            yield Asked(one, encoder.windows(one.texts[0], longest, task.stride), [])
        return
    alone = task.wants("acc_mutual_info")
    for start in range(0, len(questions), QUERIES):
        some = questions[start : start + QUERIES]
        pairs = [pair for one in some for pair in zip(one.contexts, one.continuations, strict=True)]
        queries = iter(encoder.queries(pairs))
        without = iter(encoder.queries([("", rest) for _, rest in pairs] if alone else []))
        for one in some:
            own = [next(queries) for _ in one.continuations]
            yield Asked(one, own, [next(without) for _ in own] if alone else [])


def parts(found: Iterator[Asked]) -> Iterator[list[Asked]]:
    """Questions that have some `QUERIES` queries together."""
    part, count = list[Asked](), 0
    for one in found:
        part.append(one)
        count += len(one.queries) + len(one.alone)
        if count >= QUERIES:
            yield part
            part, count = [], 0
    if part:
        yield part


def fitting(found: Iterable[Asked], longest: int, skipped: Counter[str]) -> list[Asked]:
    """Those that a model of so many positions can score; why it cannot score the others is counted in `skipped`."""
    fit = []
    for one in found:
        if reason := unfit([*one.queries, *one.alone], longest):
            skipped[reason] += 1
        else:
            fit.append(one)
    return fit


def unfit(queries: Sequence[Query], longest: int) -> str | None:
    """Why a model cannot score these."""
    if not queries or any(not query.continuation for query in queries):
        return NO_TOKEN
    if any(len(query.continuation) > longest for query in queries):
        return TOO_LONG
    return None


def choice_item(task: Task, question: Question, answers: list[Answer], unconditional: list[float]) -> Item:
    sums, greedy = [answer.sum for answer in answers], [answer.greedy for answer in answers]
    choices = question.texts
    if task.output_type == "schema":
        start = len(question.prompt)
        together = zip(question.contexts, question.continuations, strict=True)
        choices = [context[start:] + rest for context, rest in together]
    return Item(
        id=question.id, cluster=question.cluster, slices=question.slices, prompt=question.prompt, question=question.own,
        choices=choices, answers=[] if task.output_type == "loglikelihood_rolling" else [choices[n] for n in question.golds],
        logprobs=sums, tokens=[len(answer.tokens) for answer in answers], greedy=greedy, unconditional=unconditional,
        gold=question.golds[0], golds=question.golds if len(question.golds) > 1 else [], fields=question.fields,
        metrics=choice_metrics(task, Choices(question.texts, sums, greedy, question.golds, unconditional)),
    )  # fmt: skip


def core(task: Task, asked: Asked, answers: Sequence[Answer]) -> bool | None:
    """Whether an item is right as in CORE (DCLM, arXiv 2406.11794): the choice with the highest mean log-probability over the tokens
    behind what all choices begin with; of one continuation, each token being the likeliest. None for tasks about bias, which
    measure no skill."""
    if task.about_bias:
        return None
    if task.output_type == "loglikelihood":
        return answers[0].greedy
    same = 0
    if task.output_type != "schema":
        continuations = [query.continuation for query in asked.queries]
        same = sum(
            1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*continuations, strict=False))
        )
    # Of a choice with which all others begin, all tokens count.
    means = [answer.tokens[same:] if len(answer.tokens) > same else answer.tokens for answer in answers]
    return int(np.argmax([part.mean(dtype=np.float64) for part in means])) in asked.question.golds


def score_texts(
    task: Task, questions: Sequence[Question], encoder: Encoder, opened: Opened, rows: int = 16
) -> Scored:
    """Items of a task for which texts are generated, `rows` at a time."""
    wanted = task.generation_kwargs
    until = wanted.until if wanted.until is not None else [task.fewshot_delimiter]
    longest = opened.runner.context
    tokens = min(wanted.max_gen_toks, longest // 2)
    ids = encoder.ids(one.prompt for one in questions)
    prompts = [ids[one.prompt] or [encoder.eos_id] for one in questions]
    kept = [prompt[-(longest - tokens) :] for prompt in prompts]
    cut = sum(len(prompt) > len(part) for prompt, part in zip(prompts, kept, strict=True))
    generated = texts(opened, kept, sampling(wanted, until, tokens), rows)
    items = [
        Item(
            id=one.id, cluster=one.cluster, slices=one.slices, prompt=one.prompt, question=one.own,
            references=one.references, answers=one.references,
            generated=text, metrics=text_metrics(task, text, one.references),
            sums=text_sums(task, text, one.references), fields=one.fields,
        )
        for one, text in zip(questions, generated, strict=True)
    ]  # fmt: skip
    notes = shortened(cut, len(items))
    if tokens < wanted.max_gen_toks:
        notes.append(
            f"{tokens} tokens are generated at most, half of the model's context, not {wanted.max_gen_toks}"
        )
    return Scored(items, Counter(), notes)


def shortened(cut: int, of: int) -> list[str]:
    """The note on prompts that the model's context does not hold."""
    return (
        [f"{cut} of {of} prompts are longer than the model's context and lost their beginning"] if cut else []
    )


def sampling(wanted: Generation, until: Sequence[str], tokens: int) -> Sampling:
    """How texts are generated that end before one of `until`."""
    return Sampling(
        max_tokens=tokens, stop=list(until), temperature=0.0 if wanted.do_sample is False else wanted.temperature,
        top_k=wanted.top_k, top_p=wanted.top_p,
    )  # fmt: skip
