"""Calibration: whether a model is right as often as its probabilities say, of choices and of next tokens (Guo et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.schemas.evaluation import (
    CALIBRATION,
    Calibration,
    CalibrationResults,
    Item,
    ReliabilityBin,
    Temperature,
)
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.evaluate.baselines import all_blocks
from corpusmill.train.evaluate.batches import block_batches
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import estimate
from corpusmill.train.evaluate.stored import read_items, read_results
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel

if TYPE_CHECKING:
    import numpy.typing as npt

    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.shards import Source

    Flags = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]

BINS = 15
CELLS = 1 << 16  # of confidence, into which next tokens are counted
DRAWS = 1000
HOTTEST = 1000.0  # a temperature is between its inverse and it
STEPS = 121  # temperatures between which the best one is looked for


class Cells(NamedTuple):
    """Answers of (almost) the same confidence, in ascending order: how many, the sum of their confidences, and how many are right.
    Float64 [cells]; none is empty."""

    n: Floats
    confidence: Floats
    right: Floats

    @classmethod
    def of(cls, confidence: npt.ArrayLike, right: npt.ArrayLike) -> Cells:
        """Of single answers: a cell for each confidence."""
        x = np.asarray(confidence, dtype=np.float64)
        known, place, counts = np.unique(x, return_inverse=True, return_counts=True)
        hits: Floats = np.bincount(place, np.asarray(right, dtype=np.float64), minlength=len(known)).astype(
            np.float64
        )
        return cls(counts.astype(np.float64), known * counts, hits)


def calibrate(config: TrainConfig, run: Folder, next_token: bool) -> CalibrationResults:
    """`corpusmill calibration`: of the choices in the run's items and, if asked for, of next tokens over the whole validation split;
    written to `evaluation/calibration.json`. Raises `UserError` if there is neither."""
    tasks, results = {}, read_results(run)
    for task in [name for name, one in results.tasks.items() if not one.bias] if results else []:
        found = of_choices(read_items(run, task).values())
        if found is not None:
            tasks[task] = found
    if not tasks and not next_token:
        raise UserError(
            f"{run}: no task with choices was evaluated; run `corpusmill evaluate` with --tasks first, or give --next-token"
        )
    step = results.step if tasks and results else None
    result = CalibrationResults(name=config.name, tasks=tasks, tasks_step=step)
    world = join(config)
    if next_token:
        shards, checkpoint = open_run_data(config), newest_checkpoint(run)
        model = ParallelModel([load_model(config, checkpoint, shards.set.vocab_size, world.device)], world)
        scorer = Scorer(model, config, world)
        sources = {name: source for name, source in shards.validation.items() if source.index.ntokens}
        each = {name: of_cells(next_token_cells(scorer, source)) for name, source in sources.items()}
        result = result.model_copy(update={"next_token": each, "next_token_step": checkpoint.step})
    if world.first:
        (run / CALIBRATION).write(result.to_json())
    return result


def reliability(
    cells: Cells, bins: int = BINS, by: Literal["mass", "width"] = "mass"
) -> list[ReliabilityBin]:
    """The answers in at most `bins` bins, of equal numbers or of equal widths of confidence. Answers of one confidence are in one bin, so
    that their order does not matter; empty bins are left out."""
    which = _bins(cells, bins, by)
    table = []
    for number in np.unique(which):
        n, confidence, right = (column[which == number] for column in cells)
        mean = confidence / n
        table.append(
            ReliabilityBin(
                low=float(mean[0]), high=float(mean[-1]), n=int(n.sum()), confidence=float(confidence.sum() / n.sum()),
                accuracy=float(right.sum() / n.sum()),
            )
        )  # fmt: skip
    return table


def calibration_error(table: Sequence[ReliabilityBin]) -> float:
    """Expected calibration error (Naeini et al. 2015): the mean over all answers of |accuracy - confidence| of their bin."""
    return sum(one.n * abs(one.accuracy - one.confidence) for one in table) / sum(one.n for one in table)


def calibrated_error(cells: Cells, bins: int = BINS) -> tuple[float, float]:
    """The calibration error that a perfectly calibrated model shows on as many independent answers of these confidences, by chance
    alone: its mean, and what it exceeds in 5 % of samples."""
    mean = cells.confidence / cells.n
    deviation = np.sqrt(np.bincount(_bins(cells, bins, "mass"), cells.n * mean * (1 - mean)))
    draws = np.abs(np.random.default_rng(0).normal(size=(DRAWS, len(deviation)))) @ deviation / cells.n.sum()
    return math.sqrt(2 / math.pi) * float(deviation.sum() / cells.n.sum()), float(np.quantile(draws, 0.95))


def of_cells(cells: Cells, bins: int = BINS) -> Calibration:
    """The calibration of answers of which no more than confidence and success are known."""
    table, total = reliability(cells, bins), float(cells.n.sum())
    mean, high = calibrated_error(cells, bins)
    return Calibration(
        n=int(total), accuracy=float(cells.right.sum() / total), confidence=float(cells.confidence.sum() / total),
        ece=calibration_error(table), ece_width=calibration_error(reliability(cells, bins, "width")), ece_calibrated=mean,
        ece_calibrated_high=high, bins=table,
    )  # fmt: skip


def of_choices(items: Iterable[Item], bins: int = BINS) -> Calibration | None:
    """Of the items with several scored choices and a right one, whose probabilities are the softmax of the log-probabilities; None if
    there are none. Each of several right choices is right; Brier and NLL take them together, as one outcome. A temperature is fitted on the items of one half of the clusters, chosen by the hashes of their names."""
    chosen = [item for item in items if len(item.logprobs) > 1 and item.right_choices]
    if not chosen:
        return None
    width = max(len(item.logprobs) for item in chosen)
    logs = np.full((len(chosen), width), -np.inf)
    gold = np.zeros(logs.shape, dtype=np.bool_)
    for row, right, item in zip(logs, gold, chosen, strict=True):
        row[: len(item.logprobs)] = item.logprobs
        right[item.right_choices] = True
    clusters = [item.cluster for item in chosen]
    shares = np.exp(_log_softmax(logs))
    found = of_cells(_cells(logs, gold), bins)
    brier = (shares * gold).sum(1) - 1, np.where(gold, 0.0, shares)
    first = np.array([int(checksum(cluster.encode())[-1], 16) % 2 == 0 for cluster in clusters])
    return found.model_copy(
        update={
            "brier": estimate(brier[0] ** 2 + (brier[1] ** 2).sum(1), clusters, proportion=False),
            "nll": estimate(_nll(logs, gold), clusters, proportion=False),
            "fitted": _fitted(logs, gold, first, bins) if 0 < first.sum() < len(first) else None,
        }
    )


def fit_temperature(logs: Floats, gold: Flags) -> float:
    """The temperature T at which softmax(logs / T) gives the right choices the highest likelihood. `logs` [items, choices], -inf where
    an item has fewer; `gold`: which of them are right; between 1 / 1,000 and 1,000: low where every item is right, the highest where
    they are worse than a guess."""
    filled, own = np.where(np.isfinite(logs), logs, 0.0), np.where(gold, logs, -np.inf)
    ends = np.linspace(-math.log(HOTTEST), math.log(HOTTEST), STEPS)  # of the logarithm of 1 / T
    # With several right choices there may be several maxima: the highest of these, and the last of equal ones.
    losses = [_nll(logs * math.exp(end), gold).sum() for end in ends]
    best = STEPS - 1 - int(np.argmin(losses[::-1]))
    low, high = float(ends[max(best - 1, 0)]), float(ends[min(best + 1, STEPS - 1)])
    for _ in range(60):
        middle = (low + high) / 2
        shares, wanted = (np.exp(_log_softmax(part * math.exp(middle))) for part in (logs, own))
        # The derivative of the likelihood by 1 / T.
        if (shares * filled).sum() <= (wanted * filled).sum():
            low = middle
        else:
            high = middle
    return math.exp(-(low + high) / 2)


def next_token_cells(scorer: Scorer, source: Source, rows: int = 16) -> Cells:
    """Confidence and success of the likeliest next token at every position of a split, counted into cells of confidence. Data ranks
    read the same blocks and share their rows."""
    world, config = scorer.world, scorer.config
    sums = torch.zeros(3, CELLS, dtype=torch.float64)
    for block in all_blocks(source):
        batches = list(block_batches(block, config.data.sequence_length, source.index.eos_id, rows))
        mine = batches[world.data_rank :: world.data_size]
        for found, batch in zip(scorer.surprises_of_likeliest(mine), mine, strict=True):
            surprise = found[batch["labels"] >= 0]
            confidence = surprise.abs().double().neg().exp()
            cell = (confidence * CELLS).long().clamp(max=CELLS - 1)
            for row, weight in zip(
                sums, (None, confidence, (~torch.signbit(surprise)).double()), strict=True
            ):
                row += torch.bincount(cell, weight, minlength=CELLS)
    whole = (world.total(sums) / world.copies).numpy()
    return Cells(*whole[:, whole[0] > 0])


def _bins(cells: Cells, bins: int, by: Literal["mass", "width"]) -> npt.NDArray[np.int64]:
    """The bin of each cell."""
    if by == "mass":
        before: Floats = np.cumsum(cells.n) - cells.n
        found: npt.NDArray[np.int64] = np.floor(before * bins / cells.n.sum()).astype(np.int64)
        return found
    return np.minimum((cells.confidence / cells.n * bins).astype(np.int64), bins - 1)


def _cells(logs: Floats, gold: Flags) -> Cells:
    return Cells.of(np.exp(_log_softmax(logs)).max(1), gold[np.arange(len(gold)), logs.argmax(1)])


def _log_softmax(logs: Floats) -> Floats:
    shifted = logs - logs.max(1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


def _nll(logs: Floats, gold: Flags) -> Floats:
    found: Floats = -np.logaddexp.reduce(np.where(gold, _log_softmax(logs), -np.inf), axis=1)
    return found


def _fitted(logs: Floats, gold: Flags, first: Flags, bins: int) -> Temperature:
    """A temperature fitted on the items of `first`, and what it does to the others."""
    temperature = fit_temperature(logs[first], gold[first])
    rest, right = logs[~first], gold[~first]
    error = [calibration_error(reliability(_cells(one, right), bins)) for one in (rest, rest / temperature)]
    loss = [float(_nll(one, right).mean()) for one in (rest, rest / temperature)]
    return Temperature(
        temperature=temperature, n=len(right), ece_before=error[0], ece_after=error[1], nll_before=loss[0],
        nll_after=loss[1],
    )  # fmt: skip
