"""`corpusmill teacher-logits`: what a teacher thinks of each label of a run's data, kept in files, so that many students learn from one
computation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum
from corpusmill.common.task_progress import advance
from corpusmill.schemas.distillation import STORED, StoredLogits, StoreSettings, StoreSummary
from corpusmill.train.batch import inputs
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.stream import StreamingTokens
from corpusmill.train.evaluate.progress import reported
from corpusmill.train.evaluate.scorer import scored_by
from corpusmill.train.finetune.distill import teacher_of
from corpusmill.train.finetune.distribution import CHUNK, log_softmax, logits
from corpusmill.train.finetune.stored import Arrays, LogitFiles, open_files, plan_of_all
from corpusmill.train.log.sinks import log_line
from corpusmill.train.model.initialise import key
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.model.split import WHOLE
from corpusmill.train.parallel.mesh import join
from corpusmill.train.precision.adapt import autocast
from corpusmill.train.run_folder import write_json

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch
    from corpusmill.train.data.plan import Plan
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.parallel.model import ParallelModel

FILE_BYTES = 32 << 20
Part = tuple[int, int]


class Keeper:
    """Computes with a teacher in one process, and keeps of each label's distribution what the settings ask for."""

    def __init__(self, teacher: ParallelModel, about: StoredLogits, config: TrainConfig) -> None:
        self.teacher, self.about, self.config = teacher, about, config
        self.mass = 0.0  # of the kept tokens, over all labels
        self.labels = 0
        self._found: list[tuple[Tensor, ...]] = []
        self._numbers: list[int] = []

    @torch.no_grad()
    def of(self, batch: Batch) -> list[Arrays]:
        """The arrays of each sequence of a batch."""
        device, micro = next(self.teacher.parts[0].parameters()).device, self.config.data.micro_batch
        self._found, self._numbers = [], batch["n"].tolist()
        self.teacher.train(False)
        with scored_by(self.teacher, self._score), autocast(self.config, device):
            for rows in inputs(batch, device, micro=micro):
                self.teacher.losses(rows)
        narrow = np.uint16 if self.about.rows <= 2**16 else np.uint32
        kinds = {"ids": narrow, "log_p": np.float16, "rest": np.float16}
        return [
            {
                name: value.cpu().numpy().astype(kind)
                for (name, kind), value in zip(kinds.items(), kept, strict=False)
            }
            for kept in self._found
        ]

    def _score(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """In place of the loss. Of each row of its own, so that what is kept does not depend on how rows are batched."""
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        small, settings = weight.to(hidden.dtype), self.about.settings
        for row, label in zip(hidden, labels, strict=True):
            number = self._numbers[len(self._found)]
            chance = torch.Generator(row.device).manual_seed(key("logits", self.about.seed, number))
            chosen = row[label != IGNORED]
            parts = [
                keep(logits(h, small) / self.about.temperature, settings, chance)
                for h in torch.split(chosen, self.config.model.loss_chunk or CHUNK)
            ]
            self._found.append(tuple(torch.cat(columns) for columns in zip(*parts, strict=True)))
            if settings.kept == "top":
                self.mass += float(self._found[-1][1].exp().sum())
            self.labels += len(chosen)
        none = torch.zeros(labels.shape, device=labels.device)
        return none, none


def keep(values: Tensor, settings: StoreSettings, chance: torch.Generator) -> tuple[Tensor, ...]:
    """Of logits [n, V] over the temperature: ids int64 [n, k], their log-probabilities [n, k], and of the likeliest tokens the logarithm of
    the others' probability [n]."""
    log_p = log_softmax(values, WHOLE)
    if settings.kept == "sampled":
        ids = torch.multinomial(log_p.exp(), settings.count, replacement=True, generator=chance)
        return ids, log_p.gather(1, ids)
    top = log_p.topk(settings.count)
    return top.indices, top.values, log_p.scatter(1, top.indices, -torch.inf).logsumexp(-1)


def store(
    config: TrainConfig,
    out: Folder,
    settings: StoreSettings,
    sequences: int | None = None,
    part: Part = (1, 1),
) -> StoreSummary:
    """Write the distributions of `config.distillation.teacher` for the first `sequences` that a run of the config reads (None: all of
    its steps).

    Files that are there are kept, so that a second call goes on, or stores more; `part`: (i, n) writes every n-th file from the i-th on,
    for n machines. Raises `UserError` for a config without a teacher or with several stages of data, and if `out` has other
    distributions.
    """
    distillation = config.distillation
    if distillation is None:
        raise UserError("distillation: there is no teacher: --set distillation.teacher=RUN")
    world, shards = join(config), open_run_data(config, log_line)
    plan = _plan(config, shards, sequences)
    teacher, origin = teacher_of(config, distillation, shards, world)
    rows = config.model.padded(shards.set.vocab_size)
    if settings.count > rows:
        raise UserError(
            f"--{settings.kept} {settings.count}: is more than the {rows} tokens of the teacher's head: lower it"
        )
    per_file, wanted = _per_file(plan, settings, rows), sequences or plan.end_of(config.schedule.steps)
    files = _opened(
        out,
        StoredLogits(
            teacher=origin[0].name if origin else distillation.teacher,
            weights_xxh3=origin[1].weights_xxh3 if origin else None, plan=plan_of_all(plan), rows=rows,
            temperature=distillation.temperature, seed=config.seed, settings=settings, sequences=wanted,
            per_file=min(per_file, -(-wanted // plan.stages[0].sequences) * plan.stages[0].sequences),
        ),
    )  # fmt: skip
    about = files.about
    numbers = [number for number in files.missing if number % part[1] == part[0] - 1]
    keeper, began, written = Keeper(teacher, about, config), time.monotonic(), 0
    with (
        closing(_stream(config, shards, plan)) as stream,
        reported("logits", len(numbers) * about.per_file, "sequences"),
    ):
        for number in numbers:
            stream.load_state_dict({**stream.state_dict(), "n": number * about.per_file})
            found: list[Arrays] = []
            while len(found) < about.per_file:
                found += keeper.of(next(stream))
                advance(plan.stages[0].sequences)
            written += _write(out, number, found)
    return StoreSummary(
        folder=out.url, about=about, files=len(numbers), bytes=written, labels=keeper.labels,
        seconds=time.monotonic() - began,
        mass=keeper.mass / keeper.labels if settings.kept == "top" and keeper.labels else None,
    )  # fmt: skip


def _plan(config: TrainConfig, shards: Shards, sequences: int | None) -> Plan:
    plan = replace(make_plan(config.data, shards, config.seed), skip=())
    if len(plan.stages) > 1:
        raise UserError(
            "distillation.stored: cannot be of data.stages or ramps, whose sequences are others at each length: leave those out, or let"
            " the teacher compute in each step"
        )
    if sequences is not None:  # caps on repeats
        make_plan(config.data, shards, config.seed, -(-sequences // plan.stages[0].sequences))
    return plan


def _stream(config: TrainConfig, shards: Shards, plan: Plan) -> StreamingTokens:
    return StreamingTokens(shards, plan=plan, log=log_line, **config.data.model_dump(exclude={"shards"}))


def _per_file(plan: Plan, settings: StoreSettings, rows: int) -> int:
    """Whole batches, of about `FILE_BYTES` if every token is a label."""
    of_label = settings.count * (4 if rows <= 2**16 else 6) + 2
    batch = plan.stages[0].sequences
    return batch * max(FILE_BYTES // (of_label * plan.sequence_length * batch), 1)


def _opened(out: Folder, about: StoredLogits) -> LogitFiles:
    """The files in a folder, to be as many as `about` needs, or more."""
    if (out / STORED).exists():
        before = open_files(out).about
        kept = {"per_file": before.per_file, "sequences": before.sequences}
        differing = [name for name, value in about if name not in kept and value != getattr(before, name)]
        if differing:
            raise UserError(
                f"{out}: has other distributions, by {', '.join(differing)}: name another folder, or delete this one"
            )
        more = max(before.sequences, -(-about.sequences // before.per_file) * before.per_file)
        about = before.model_copy(update={"sequences": more})
    else:
        about = about.model_copy(update={"sequences": -(-about.sequences // about.per_file) * about.per_file})
    write_json(out / STORED, about.model_dump(mode="json"))
    return LogitFiles(out, about)


def _write(out: Folder, number: int, sequences: Sequence[Arrays]) -> int:
    """Returns its bytes."""
    from safetensors.numpy import save

    names = list(sequences[0])
    offsets = np.cumsum([0, *(len(one["ids"]) for one in sequences)], dtype=np.int64)
    data = save(
        {"offsets": offsets, **{name: np.concatenate([one[name] for one in sequences]) for name in names}}
    )
    (out / f"{number:05d}-{checksum(data)}.safetensors").write(data)
    return len(data)
