"""A run's newest checkpoint on tasks: `evaluation/results.json` and the items, in the run's folder. What has been scored with the
same weights, task, data and settings is not scored again."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import library
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import ITEMS, RESULTS, Estimate, EvaluationResults, Item, TaskResult
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.tasks import CHOICE, CLASSES, Task
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.checkpoint import Checkpoint
from corpusmill.train.data.opening import run_vocabulary
from corpusmill.train.data.rewriting import Vocabulary
from corpusmill.train.evaluate.masked import scorer_of
from corpusmill.train.evaluate.measures import measure
from corpusmill.train.evaluate.metrics.classification import classification
from corpusmill.train.evaluate.progress import reported
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import estimate, linearised
from corpusmill.train.evaluate.tasks.data import files_of, read_rows
from corpusmill.train.evaluate.tasks.encode import Encoder
from corpusmill.train.evaluate.tasks.metrics import corpus_metrics, signatures
from corpusmill.train.evaluate.tasks.read import Found, find_task
from corpusmill.train.evaluate.tasks.render import Question, Renderer
from corpusmill.train.evaluate.tasks.score import Answers, Scored, score_choices, score_rolling, score_texts
from corpusmill.train.generate.generate import Opened
from corpusmill.train.generate.runner import Runner
from corpusmill.train.log.sinks import log_line
from corpusmill.train.parallel.mesh import World, join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import TOKENIZER

VERSION = 3  # of how items and figures are computed


class Prepared(NamedTuple):
    """A task with the questions to ask. `hash`: of its definition and its data; `limit`: how many are asked."""

    task: Task
    questions: list[Question]
    skipped: Counter[str]
    notes: list[str]
    hash: str
    limit: int | None = None


def prepare(
    found: Found, given: dict[str, list[str]], folders: Sequence[str], limit: int | None = None,
    fewshot: int | None = None,
) -> Prepared:  # fmt: skip
    """Read a task's data and make its questions, all or `limit` of them, spread evenly. `given`: files by name; `folders`: where
    files of the task's name are looked for; `fewshot`: examples in each prompt, in place of the task's number.

    Raises `UserError` if there is no data or no row of it gives a question.
    """
    if fewshot is not None:
        found = found._replace(task=found.task.model_copy(update={"num_fewshot": fewshot}))
    task = found.task
    signatures(task, [])  # which finds a library that is missing before anything is generated
    files = files_of(found, given, folders)
    rows, examples = read_rows(files.rows), read_rows(files.examples)
    total = len(rows.rows) + rows.skipped.total()
    rendered = Renderer(task, examples.rows).render(rows.rows, total, limit)
    if not rendered.questions:
        first = next(iter([*rendered.skipped, *rows.skipped]), "it has no rows")
        columns = ", ".join(map(repr, rows.rows[0].columns)) if rows.rows else "none"
        raise UserError(
            f"{task.task}: {', '.join(files.rows)}: gives no item: {first}; its columns: {columns}"
        )
    notes = []
    if limit is not None and limit < total:
        notes.append(f"{limit} of {total} rows, spread evenly")
    if task.num_fewshot and not files.examples and not task.fewshot_config.samples:
        notes.append("examples are other rows of the evaluated data")
    if examples.skipped:
        notes.append(f"{examples.skipped.total()} damaged rows of examples were left out")
    definition = task.model_dump(mode="json", exclude={"data", "hub", "about", "licence", "citation", "bias"})
    if task.bias:  # of other tasks the hash is what it was before there was this key
        definition["bias"] = True
    key = hash_json([VERSION, definition, rows.hash, examples.hash])
    return Prepared(task, rendered.questions, rows.skipped + rendered.skipped, notes, key, limit)


class Model(NamedTuple):
    """What answers: log-probabilities of queries, and texts, where texts can be generated."""

    encoder: Encoder
    answers: Answers
    longest: int
    opened: Opened | None
    causal: bool = True


def score(prepared: Prepared, model: Model, rows: int = 16) -> Scored:
    """The items of a task. Raises `UserError` if it generates and the model cannot."""
    task, questions = prepared.task, prepared.questions
    if task.output_type == "loglikelihood_rolling":
        return score_rolling(task, questions, model.encoder, model.answers, model.longest)
    if task.output_type != "generate_until":
        return score_choices(task, questions, model.encoder, model.answers, model.longest)
    if model.opened is None and not model.causal:
        raise UserError(f"{task.task}: generates texts, which a masked language model does not: leave it out")
    if model.opened is None:
        raise UserError(f"{task.task}: generates texts, which one process does: start it without torchrun")
    return score_texts(task, questions, model.encoder, model.opened, rows)


def summary(prepared: Prepared, scored: Scored, key: str, context: int | None = None) -> TaskResult:
    """The figures of a task, of all its items and by slice, of a model with `context` positions."""
    task, items = prepared.task, scored.items
    notes = [*prepared.notes, *scored.notes, *(signatures(task, items) if items else [])]
    if task.output_type == "schema":
        notes.append("scored is the common end of the choices, after contexts that differ")
    slices: dict[str, dict[str, dict[str, Estimate]]] = {}
    for name in task.slices:
        by_value: dict[str, list[Item]] = {}
        for item in items:
            by_value.setdefault(item.slices[name], []).append(item)
        slices[name] = {value: figures(task, by_value[value]) for value in sorted(by_value)}
    return TaskResult(
        task=task.task, task_hash=key, questions_hash=prepared.hash, limit=prepared.limit, context=context, items=len(items),
        fewshot=task.num_fewshot, chance=chance(task, items), bias=task.about_bias, metrics=figures(task, items), slices=slices,
        skipped=dict(sorted((prepared.skipped + scored.skipped).items())),
        notes=notes,
    )  # fmt: skip


def figures(task: Task, items: Sequence[Item]) -> dict[str, Estimate]:
    """Means of the items' metrics, and what is computed from sums over all of them."""
    if not items:
        return {}
    clusters = [item.cluster for item in items]
    if task.output_type == "loglikelihood_rolling":
        texts = [item.choices[0] for item in items]
        nats = {
            "byte": ratio(items, [len(text.encode()) for text in texts]),
            "word": ratio(items, [len(re.split(r"\s+", text)) for text in texts]),
        }
        made = {
            "bits_per_byte": scaled(nats["byte"], 1 / math.log(2)),
            "byte_perplexity": exponential(nats["byte"]), "word_perplexity": exponential(nats["word"]),
        }  # fmt: skip
        return {one.metric: made[one.metric] for one in task.metrics}
    found = {
        name: estimate([item.metrics[name] for item in items], clusters, proportion=measure(name).share)
        for name in items[0].metrics
    }
    if classes := [name for name in CLASSES if task.wants(name)]:
        chosen = [int(np.argmax(item.logprobs)) for item in items]
        named = classification(
            chosen, [item.gold for item in items], [CLASSES[n] for n in classes], 1, clusters
        )
        found.update((name, named[CLASSES[name]]) for name in classes)
    found.update(corpus_metrics(items))
    if task.wants("perplexity"):
        found["perplexity"] = exponential(scaled(found["loglikelihood"], -1))
    return found


def ratio(items: Sequence[Item], sizes: Sequence[int]) -> Estimate:
    """Nats of all items together over their sizes together; its uncertainty by linear approximation."""
    nats = [-item.logprobs[0] for item in items]
    return estimate(linearised(nats, sizes), [item.cluster for item in items], proportion=False)


def scaled(of: Estimate, factor: float) -> Estimate:
    """A multiple of a figure."""
    ends = [None if end is None else end * factor for end in (of.low, of.high)]
    low, high = ends if factor > 0 else ends[::-1]
    se = None if of.se is None else of.se * abs(factor)
    return of.model_copy(update={"value": of.value * factor, "se": se, "low": low, "high": high})


def exponential(of: Estimate) -> Estimate:
    """exp of a figure, with its interval's ends, and the standard error by linear approximation."""

    def exp(value: float | None) -> float | None:
        return None if value is None else math.exp(min(value, 700.0))

    value = math.exp(min(of.value, 700.0))
    se = None if of.se is None else value * of.se
    return of.model_copy(update={"value": value, "se": se, "low": exp(of.low), "high": exp(of.high)})


def chance(task: Task, items: Sequence[Item]) -> float | None:
    """Expected accuracy of a guess: the task's, or the mean share of right choices."""
    if task.chance is not None or task.output_type not in CHOICE or not items:
        return task.chance
    return sum((len(item.golds) or 1) / len(item.choices) for item in items) / len(items)


def evaluate_tasks(
    config: TrainConfig, run: Folder, tasks: Sequence[str], *, given: dict[str, list[str]] | None = None,
    folders: Sequence[str] = (), limit: int | None = None, fewshot: int | None = None, rows: int = 16,
) -> tuple[EvaluationResults, list[str]]:  # fmt: skip
    """Score the newest checkpoint on tasks, by name or YAML file. Returns the results, with those of other tasks that the folder
    has of the same weights, and the names of the tasks that were asked for. `rows`: of a batch.

    Raises `UserError` for a task or data that cannot be read, and without a valid checkpoint.
    """
    found = [find_task(name) for name in tasks]
    names = Counter(one.task.task for one in found)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise UserError(f"--tasks: two tasks have the name {twice[0]}")
    unknown = [name for name in given or {} if name.removesuffix(".fewshot") not in names]
    if unknown:
        raise UserError(f"--data {unknown[0]}=...: no such task is evaluated (--tasks: {', '.join(names)})")
    prepared = [prepare(one, given or {}, folders, limit, fewshot) for one in found]
    newest = newest_checkpoint(run)
    empty = EvaluationResults(
        name=config.name, step=newest.step, weights_hash=newest.weights_xxh3, tokenizer_hash=checksum((run / TOKENIZER).read()),
        precision=config.precision, version=version("corpusmill"), tasks={},
    )  # fmt: skip
    known = known_results(run, empty)
    keys = {
        one.task.task: hash_json([one.hash, one.limit, empty.tokenizer_hash, config.data.sequence_length])
        for one in prepared
    }
    results = {
        name: task for name, task in known.tasks.items() if task.task_hash == keys.get(name, task.task_hash)
    }
    todo = [one for one in prepared if one.task.task not in results]
    world = join(config)
    if todo and world.first:  # no figures beside items of others, whenever this is killed
        write(run, empty, results)
    model = open_model(config, run, newest, world, rows) if todo else None
    for one in todo:
        assert model is not None
        count = len(one.questions)
        log_line(f"{one.task.task}: {count:,} items")
        with reported(one.task.task, count):
            scored = score(one, model, rows)
        results[one.task.task] = summary(one, scored, keys[one.task.task], config.data.sequence_length)
        if world.first:
            lines = (item.model_dump_json(exclude_defaults=True) + "\n" for item in scored.items)
            (run / ITEMS / f"{one.task.task}.jsonl").write("".join(lines).encode())
            write(run, empty, results)
    return empty.model_copy(update={"tasks": dict(sorted(results.items()))}), list(names)


def write(run: Folder, about: EvaluationResults, results: dict[str, TaskResult]) -> None:
    """Publish these results, and delete items of no task that they have."""
    whole = about.model_copy(update={"tasks": dict(sorted(results.items()))})
    (run / RESULTS).write(whole.to_json())
    stale = {entry.path for entry in (run / ITEMS).list()} - {f"{name}.jsonl" for name in results}
    if stale:
        (run / ITEMS).delete(sorted(stale))


def open_model(config: TrainConfig, run: Folder, found: Checkpoint, world: World, rows: int = 16) -> Model:
    """The model of a checkpoint, for batches of `rows`; it generates in one process only."""
    longest = config.data.sequence_length
    kept = run_vocabulary(config, run)
    decoder = load_model(config, found, kept.vocab_size, world.device, masked=True)
    tokenizer, where = (run / TOKENIZER).read(), str(run / TOKENIZER)
    vocabulary = Vocabulary(tokenizer, kept.eos_id, kept.vocab_size, where)
    scorer = scorer_of(ParallelModel([decoder], world), config, world, vocabulary)
    encoder = Encoder(library(tokenizer, where), kept.eos_id)
    opened = None
    if world.size == 1 and config.model.causal:
        runner = Runner(decoder, kept.vocab_size, kept.eos_id, longest, config.precision)
        opened = Opened(runner, encoder.tokenizer, found.step)
    return Model(encoder, lambda queries: scorer.answers(queries, rows), longest, opened, config.model.causal)


def known_results(run: Folder, now: EvaluationResults) -> EvaluationResults:
    """The results that the run's folder has of the same weights, tokenizer and precision, and of tasks whose items are there; or
    none."""
    try:
        found = EvaluationResults.from_json((run / RESULTS).read(), run / RESULTS, UserError)
    except (FileNotFoundError, UserError):
        return now
    same = ("step", "weights_hash", "tokenizer_hash", "precision", "version")
    if any(getattr(found, key) != getattr(now, key) for key in same):
        return now
    there = {entry.path for entry in (run / ITEMS).list()}
    return found.model_copy(
        update={"tasks": {name: task for name, task in found.tasks.items() if f"{name}.jsonl" in there}}
    )
