"""`corpusmill robustness`: what typing errors, case, synonyms, distractors and the format of a prompt change in the figures of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corpusmill.common.errors import UserError
from corpusmill.schemas.robustness import (
    ROBUSTNESS,
    Drop,
    FormatSpread,
    PerturbedTask,
    Robustness,
    SourceContexts,
    TaskRobustness,
)
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.evaluate.context import contexts
from corpusmill.train.evaluate.measures import measure
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import compared, estimate
from corpusmill.train.evaluate.stored import item_values
from corpusmill.train.evaluate.tasks.perturb import Format, formats, perturbed
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.run import Model, Prepared, figures, open_model, prepare, score
from corpusmill.train.log.sinks import log_line
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel

if TYPE_CHECKING:
    from corpusmill.common.perturb import Perturbation
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.evaluation import Item
    from corpusmill.schemas.training import TrainConfig


def robustness(
    config: TrainConfig, run: Folder, tasks: Sequence[str], perturbations: Sequence[Perturbation], count: int = 0, *,
    choices: bool = False, seed: int = 0, given: dict[str, list[str]] | None = None, folders: Sequence[str] = (),
    limit: int | None = None, fewshot: int | None = None, rows: int = 16, context: bool = False,
) -> Robustness:  # fmt: skip
    """Score the newest checkpoint on each task as it is, under each perturbation and in `count` prompt formats; returns what
    `evaluation/robustness.json` holds. Costs one evaluation for each of them. `context`: also the validation splits behind perturbed
    text (`corpusmill.train.evaluate.context`).

    Raises `UserError` if neither perturbations nor formats are asked for, and what `evaluate_tasks` raises.
    """
    if not tasks and not context:
        raise UserError("robustness: nothing is scored: name --tasks, or --context")
    if context and not perturbations:
        raise UserError("--context: nothing is changed: name a --perturb KIND:RATE")
    if not perturbations and count < 2:
        raise UserError("robustness: nothing is changed: name a --perturb KIND:RATE, or --formats 2 or more")
    prepared = [prepare(find_task(name), given or {}, folders, limit, fewshot) for name in tasks]
    # Impossible ones are refused before anything is scored.
    made = [[perturbed(one, by, seed, choices) for by in perturbations] for one in prepared]
    spread = [formats(one, count, seed) if count > 1 else [] for one in prepared]
    newest, world = newest_checkpoint(run), join(config)
    sources: dict[str, SourceContexts] = {}
    if context:
        shards = open_run_data(config)
        decoder = load_model(config, newest, shards.set.vocab_size, world.device)
        scorer = Scorer(ParallelModel([decoder], world), config, world)
        sources = contexts(scorer, shards, perturbations, seed, limit, rows)
    model = open_model(config, run, newest, world, rows) if tasks else None
    found = []
    for task, variants, looks in zip(prepared, made, spread, strict=True):
        assert model is not None
        log_line(
            f"{task.task.task}: {len(task.questions):,} items, {1 + len(variants) + max(len(looks) - 1, 0)} times"
        )
        plain = score(task, model, rows).items
        found.append(
            TaskRobustness(
                task=task.task.task, questions_hash=task.hash, metrics=figures(task.task, plain),
                perturbed=[
                    under(by, task, one, plain, score(one, model, rows).items)
                    for by, one in zip(perturbations, variants, strict=True)
                ],
                formats=spread_of([one for one, _ in looks], [each for _, each in looks], plain, model, rows) if looks else None,
            )
        )  # fmt: skip
    result = Robustness(
        name=config.name,
        step=newest.step,
        weights_hash=newest.weights_xxh3,
        seed=seed,
        choices=choices,
        tasks=found,
        contexts=sources,
    )
    if world.first:
        (run / ROBUSTNESS).write(result.to_json())
    return result


def under(
    by: Perturbation, task: Prepared, changed: Prepared, plain: Sequence[Item], items: Sequence[Item]
) -> PerturbedTask:
    """The metrics that items have of their own, of those that could be scored with and without the perturbation."""
    other = {item.id: item for item in items}
    pairs = [(item, other[item.id]) for item in plain if item.id in other]
    if not pairs:
        raise UserError(f"{task.task.task}: no item could be scored with and without {by.name}")
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    clusters = [item.cluster for item in before]
    metrics = {}
    for name in before[0].metrics:
        values = item_values(before, name), item_values(after, name)
        found = compared(values[1], values[0], clusters)
        metrics[name] = Drop(
            perturbed=estimate(values[1], clusters, proportion=measure(name).share), difference=found.estimate, p=found.p
        )  # fmt: skip
    return PerturbedTask(
        perturbation=by.name, items=len(pairs), metrics=metrics,
        changed=sum(a != b for a, b in zip(task.questions, changed.questions, strict=True)),
    )  # fmt: skip


def spread_of(
    looks: Sequence[Format], variants: Sequence[Prepared], plain: Sequence[Item], model: Model, rows: int
) -> FormatSpread:
    """Of a task's first metric."""
    task = variants[0].task
    metric = next(iter(figures(task, plain)))
    values = [figures(task, plain)[metric]]
    values += [figures(task, score(one, model, rows).items)[metric] for one in variants[1:]]
    order = sorted(range(len(values)), key=lambda number: values[number].value)
    return FormatSpread(
        metric=metric, formats=[one.name for one in looks], values=values, lowest=order[0], highest=order[-1],
        spread=values[order[-1]].value - values[order[0]].value,
    )  # fmt: skip
