"""Distillation from distributions that a teacher computed before (`corpusmill teacher-logits`): their files, and the divergence from
what they keep.

`top`: of the k likeliest tokens and of all others as one, sum p log(p / q) over these k + 1, which is at most the whole divergence and
equal to it if k is the vocabulary. `sampled` (Random Sampling KD, Anshumann et al. 2025): the mean of log(p / q) over k draws from the
teacher, whose expectation and gradient are those of the whole divergence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.distillation import STORED, StoredLogits
from corpusmill.train.data.planning import make_plan
from corpusmill.train.evaluate.scorer import denominator
from corpusmill.train.finetune.distribution import Context, Learner, log_softmax
from corpusmill.train.model.losses import IGNORED, own_rows
from corpusmill.train.model.split import Split

if TYPE_CHECKING:
    from corpusmill.schemas.distillation import DistillationConfig
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import MicroBatch
    from corpusmill.train.data.plan import Plan
    from corpusmill.train.data.shards import Shards

NAME = re.compile(r"(\d{5,})-([0-9a-f]{16,32})\.safetensors")
Arrays = dict[str, npt.NDArray[np.generic]]


class Kept(NamedTuple):
    """`Distributions` of a micro-batch's positions [N], those without a label included. `ids`: int64 [L, k]; `log_p`: float32 [L, k];
    `rest`: float32 [L], None of draws and where nothing is left out; `at`: int64 [N], which of the L labels a position has."""

    ids: Tensor
    log_p: Tensor
    rest: Tensor | None
    at: Tensor
    drawn: bool

    def divergence(self, x: Tensor, first: int, split: Split) -> Tensor:
        ids, log_p, rest, p = self._of(first, len(x))
        row, here = own_rows(ids, split.rank * x.shape[1], x.shape[1])
        log_z = denominator(x.logsumexp(-1), split)
        log_q = split.sum(x.gather(1, row) * here) - log_z[:, None]
        found = (p * (log_p - log_q)).sum(-1)
        if rest is not None:
            log_rest = denominator(_others(x, row, here).logsumexp(-1), split) - log_z
            found = found + torch.where(rest.isfinite(), rest.exp() * (rest - log_rest), 0.0)
        return found

    def gradient(self, x: Tensor, first: int, split: Split) -> Tensor:
        ids, _, rest, p = self._of(first, len(x))
        row, here = own_rows(ids, split.rank * x.shape[1], x.shape[1])
        found = log_softmax(x, split).exp()
        if rest is not None:
            found -= rest.exp()[:, None] * log_softmax(_others(x, row, here), split).exp().nan_to_num()
        return found.scatter_add_(1, row, -p * here)

    def _of(self, first: int, count: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """ids, log_p, rest, and the weight of each of the tokens, of some positions; log_p and rest are those of weights that sum to 1."""
        at = self.at[first : first + count]
        ids, log_p = self.ids[at], self.log_p[at]
        if self.drawn:
            return ids, log_p, None, torch.full_like(log_p, 1 / log_p.shape[1])
        rest = None if self.rest is None else self.rest[at]
        # Stored in 16 bits, they sum to 1 only nearly.
        total = (log_p if rest is None else torch.cat((log_p, rest[:, None]), 1)).logsumexp(-1)
        log_p = log_p - total[:, None]
        return ids, log_p, None if rest is None else rest - total, log_p.exp()


def _others(x: Tensor, row: Tensor, here: Tensor) -> Tensor:
    """Logits, those of the tokens at `row` that are `here` at minus infinity."""
    named = torch.zeros_like(x).scatter_add_(1, row, here.to(x.dtype))
    return x.masked_fill(named > 0, -torch.inf)


class Stored(Learner):
    """A teacher whose distributions are read from files, each at once and the next one ahead."""

    def __init__(
        self, config: DistillationConfig, files: LogitFiles, device: torch.device, chunk: int | None = None
    ) -> None:
        super().__init__(config, chunk)
        self.files, self.device = files, device

    def begin(self, parts: Sequence[MicroBatch], context: Context = nullcontext) -> None:
        """Reads what a step needs. Raises `WorkError` for a sequence that is not stored, or a file that is damaged."""
        self.queue.clear()
        for part in parts:
            assert part.numbers is not None
            self.queue.append(self._kept(self.files.of(part.numbers.numpy()), part.inputs["labels"]))

    def _kept(self, found: Arrays, labels: Tensor) -> Kept:
        def sent(name: str, kind: type[np.generic]) -> Tensor:
            host = torch.from_numpy(found[name].astype(kind))
            return (host.pin_memory() if self.device.type == "cuda" else host).to(
                self.device, non_blocking=True
            )

        at = ((labels.flatten() != IGNORED).cumsum(0) - 1).clamp_(min=0)
        settings = self.files.about.settings
        rest = sent("rest", np.float32) if "rest" in found else None
        return Kept(sent("ids", np.int64), sent("log_p", np.float32), rest, at, settings.kept == "sampled")


class LogitFiles:
    """The files of a folder, by sequence numbers."""

    def __init__(self, folder: Folder, about: StoredLogits) -> None:
        self.folder, self.about = folder, about
        matches = [NAME.fullmatch(entry.path) for entry in folder.list()]
        self.names = {int(match[1]): match[0] for match in matches if match}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="logits")
        self._read: dict[int, Future[Arrays]] = {}

    @property
    def missing(self) -> list[int]:
        count = -(-self.about.sequences // self.about.per_file)
        return [number for number in range(count) if number not in self.names]

    def of(self, numbers: npt.NDArray[np.int64]) -> Arrays:
        """The arrays of these sequences, in their order."""
        if numbers.max() >= self.about.sequences:
            raise WorkError(
                f"distillation.stored: {self.folder}: has sequences 0 to {self.about.sequences - 1}, and the run reads"
                f" {numbers.max()}: store more of them (--sequences)"
            )
        files, within = np.divmod(numbers, self.about.per_file)
        wanted = np.unique(files).tolist()
        for number in (*wanted, wanted[-1] + 1):
            if number in self.names and number not in self._read:
                self._read[number] = self._pool.submit(self._load, number)
        for number in [one for one in self._read if not wanted[0] <= one <= wanted[-1] + 1]:
            del self._read[number]
        parts: list[Arrays] = []
        for number, row in zip(files.tolist(), within.tolist(), strict=True):
            file = self._read[number].result()
            low, high = file["offsets"][row : row + 2].tolist()
            parts.append({name: values[low:high] for name, values in file.items() if name != "offsets"})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _load(self, number: int) -> Arrays:
        from safetensors.numpy import load

        name = self.names[number]
        data = (self.folder / name).read()
        match = NAME.fullmatch(name)
        if match is None or checksum(data) != match[2]:
            raise WorkError(
                f"{self.folder / name}: is damaged: delete it and run `corpusmill teacher-logits` again"
            )
        return dict(load(data))


def open_stored(
    config: TrainConfig, distillation: DistillationConfig, shards: Shards, device: torch.device
) -> Stored:
    """What `distillation.stored` names, for a run. Raises `UserError` if it is of other data, or not of all that the run reads."""
    assert distillation.stored is not None
    files = open_files(Folder(distillation.stored))
    about, plan = files.about, make_plan(config.data, shards, config.seed)
    where = f"distillation.stored: {files.folder}"
    if about.plan != plan_of_all(plan):
        raise UserError(
            f"{where}: was stored for other data, or another order of it, than this config's: store it for this config"
        )
    rows = config.model.padded(shards.set.vocab_size)
    if about.rows != rows:
        raise UserError(
            f"{where}: the teacher's head has {about.rows} rows, the student's {rows}: set model.vocab_multiple to the teacher's"
        )
    if about.temperature != distillation.temperature:
        raise UserError(
            f"{where}: is of temperature {about.temperature:g}: set distillation.temperature to it, or store it again"
        )
    wanted = plan.end_of(config.schedule.steps)
    if wanted > about.sequences:
        raise UserError(
            f"{where}: has {about.sequences:,} sequences, and {config.schedule.steps} steps read {wanted:,}: store more of them"
            f" (--sequences {wanted})"
        )
    if missing := files.missing:
        raise UserError(
            f"{where}: lacks {len(missing)} of its files (the first is {missing[0]:05d}): run `corpusmill teacher-logits` again, which"
            " writes those"
        )
    return Stored(distillation, files, device, config.model.loss_chunk)


def open_files(folder: Folder) -> LogitFiles:
    """Raises `UserError` for another folder."""
    try:
        about = json.loads((folder / STORED).read())
    except FileNotFoundError:
        raise UserError(
            f"distillation.stored: {folder}: has no {STORED}: write it with `corpusmill teacher-logits`"
        ) from None
    except ValueError:
        raise UserError(
            f"{folder / STORED}: not JSON: delete the folder and store the distributions again"
        ) from None
    return LogitFiles(folder, validate(StoredLogits, about, str(folder / STORED)))


def plan_of_all(plan: Plan) -> str:
    """What names the sequences of a plan by their numbers, whichever of them are skipped."""
    return replace(plan, skip=()).sha256
