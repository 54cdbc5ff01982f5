"""Tasks during a training run: a fixed part of each, at most so large that scoring it takes a set share of the time."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.common.format import quantity
from corpusmill.common.hugging_face import library
from corpusmill.common.storage import Folder
from corpusmill.schemas.tasks import METRICS, Metric
from corpusmill.train.data.rewriting import Vocabulary
from corpusmill.train.evaluate.masked import scorer_of
from corpusmill.train.evaluate.statistics import centred, of_core
from corpusmill.train.evaluate.tasks.encode import Encoder
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.render import even
from corpusmill.train.evaluate.tasks.run import Model, Prepared, chance, figures, prepare
from corpusmill.train.evaluate.tasks.run import score as score_task
from corpusmill.train.evaluate.tasks.score import asked, fitting
from corpusmill.train.log.sinks import log_line
from corpusmill.train.run_folder import TOKENIZER, read_json, write_json

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.parallel.mesh import World
    from corpusmill.train.parallel.model import ParallelModel

ITEMS_FILE = "evaluation/during.json"  # items of each task, the same for the whole run
LEAST = 20  # items of a task: fewer say nothing
EARLY = "gold_logprob_per_byte"
TRIED = 8  # items of a task whose time is measured


class Scores(NamedTuple):
    """A row's `tasks`, and its `core`: the mean above chance of those tasks that have a chance level."""

    tasks: dict[str, dict[str, float]]
    core: float | None

    def row(self) -> dict[str, Any]:
        return {"tasks": self.tasks, **({} if self.core is None else {"core": self.core})}

    def line(self) -> str:
        """The first figure of each task."""
        first = {name: next(iter(found.values()), None) for name, found in self.tasks.items()}
        return "  ".join(f"{name} {'–' if one is None else f'{one:.4f}'}" for name, one in first.items())


class TaskCurves:
    """The tasks of `config.evaluation`, read when a run starts, so that mistakes in them end it at once.

    Raises `UserError` for a task that cannot be read, generates texts or has no item that the model can score. All processes call it
    together.
    """

    def __init__(self, config: TrainConfig, run: Folder, world: World, shards: Shards) -> None:
        given = config.evaluation
        files = {name: [file] if isinstance(file, str) else file for name, file in given.data.items()}
        folders = [given.folder] if given.folder else []
        self.config, self.run, self.world = config, run, world
        prepared = [prepare(find_task(name), files, folders, given.limit) for name in given.tasks]
        for one in prepared:
            if one.task.output_type == "generate_until":
                raise UserError(
                    f"evaluation.tasks: {one.task.task} generates texts; a run scores choices alone: leave it to `corpusmill"
                    " evaluate`"
                )
        self.encoder = Encoder(library(shards.tokenizer(), str(run / TOKENIZER)), shards.set.eos_id)
        self.vocabulary = Vocabulary.of(shards)
        self.prepared = [scorable(one, self.encoder, config.data.sequence_length) for one in prepared]
        for one in self.prepared:
            if one.skipped and world.first:
                reasons = "; ".join(f"{reason} ({count:,})" for reason, count in one.skipped.items())
                count = quantity(one.skipped.total(), "item")
                log_line(f"evaluation: {one.task.task}: {count} left out: {reasons}")
        self.counts = self._known()

    def scores(self, model: ParallelModel, seconds_per_step: float) -> tuple[Scores, str]:
        """Score the tasks with the model as it is; and a line on what was decided, the first time.

        `seconds_per_step`: of training, by which the first call of a run sets how many items of each task all calls score.
        """
        scorer = scorer_of(model, self.config, self.world, self.vocabulary)
        ready = Model(self.encoder, scorer.answers, scorer.longest, None)
        line = ""
        if self.counts is None:
            self.counts, line = self._measured(ready, seconds_per_step)
        tasks, centre = dict[str, dict[str, float]](), list[tuple[float, float]]()
        for one, count in zip(self.prepared, self.counts, strict=True):
            items = score_task(part_of(one, count), ready).items
            tasks[one.task.task] = {name: found.value for name, found in figures(one.task, items).items()}
            if (part := of_core(items, chance(one.task, items))) is not None:
                centre.append(part)
        return Scores(tasks, centred(centre)), line

    def _known(self) -> list[int] | None:
        """The numbers of items that the run began with."""
        kept = read_json(self.run / ITEMS_FILE) if self.world.first else {}
        counts = [kept.get(one.task.task, 0) for one in self.prepared]
        known = [self.world.agree(count) for count in counts]
        return known if all(known) else None

    def _measured(self, ready: Model, seconds_per_step: float) -> tuple[list[int], str]:
        """How many items of each task fit into the share of the time, the same number of all if there are as many."""
        given = self.config.evaluation
        each = []
        for _ in range(2):  # the first time more than the model is measured
            each = [self._time(one, ready) for one in self.prepared]
        allowed = given.budget * (given.every or 1) * seconds_per_step
        count = self.world.agree(max(LEAST, int(allowed / sum(each))))
        counts = [min(count, len(one.questions)) for one in self.prepared]
        if self.world.first:
            names = [one.task.task for one in self.prepared]
            write_json(self.run / ITEMS_FILE, dict(zip(names, counts, strict=True)))
        share = sum(c * s for c, s in zip(counts, each, strict=True)) / (
            (given.every or 1) * seconds_per_step
        )
        asked = [min(given.limit, len(one.questions)) for one in self.prepared]
        if counts == asked:
            return counts, ""
        named = (
            f"{count:,} of {of:,} items of {one.task.task}"
            for count, of, one in zip(counts, asked, self.prepared, strict=True)
        )
        over = ", more than evaluation.budget: raise evaluation.every" if share > 1.5 * given.budget else ""
        return counts, f"evaluation: {', '.join(named)}: {share:.1%} of the time{over}"

    def _time(self, one: Prepared, ready: Model) -> float:
        """Seconds an item, in the slowest process."""
        some = part_of(one, TRIED)
        began = time.monotonic()
        score_task(some, ready)
        return self.world.highest((time.monotonic() - began) / len(some.questions))


def part_of(one: Prepared, count: int) -> Prepared:
    """So many questions of a task, spread evenly."""
    return one._replace(questions=[one.questions[n] for n in even(len(one.questions), count)])


def scorable(one: Prepared, encoder: Encoder, longest: int) -> Prepared:
    """A task with those questions that a model of so many positions can score, and with the right choice's log-probability per byte
    among its metrics, where it is defined: it moves before an accuracy does. Raises `UserError` if there is no such question."""
    skipped = Counter[str]()
    questions = [
        each.question for each in fitting(asked(one.task, one.questions, encoder, longest), longest, skipped)
    ]
    if not questions:
        raise UserError(
            f"evaluation.tasks: {one.task.task}: no item can be scored: {next(iter(skipped))}; the model has {longest} positions"
            " (data.sequence_length)"
        )
    task = one.task
    if task.output_type in METRICS[EARLY][0] and not task.wants(EARLY):
        task = task.model_copy(update={"metric_list": [*task.metrics, Metric(metric=EARLY)]})
    return one._replace(task=task, questions=questions, skipped=one.skipped + skipped)
