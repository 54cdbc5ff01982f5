"""A pipeline: which layers each stage has, and a step's micro-batches through them (`torch.distributed.pipelining`)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import Mesh

if TYPE_CHECKING:
    from torch.distributed.pipelining import PipelineStage

Rows = dict[str, Tensor]  # a decoder's arguments, by name
Objective = Callable[
    [Tensor, int], Tensor
]  # from the losses [B, T] of a micro-batch and its number to what is differentiated


def layers_of(layers: int, pieces: int) -> list[range]:
    """The layers of each of `pieces`, as equal in number as possible."""
    bounds = [round(layers * i / pieces) for i in range(pieces + 1)]
    return [range(low, high) for low, high in pairwise(bounds)]


def keep(model: Decoder, piece: int, pieces: int) -> Decoder:
    """Remove from a decoder what does not belong to this piece of it. Names stay."""
    kept = layers_of(model.config.layers, pieces)[piece]
    for number in range(model.config.layers):
        if number not in kept:
            del model.layers[str(number)]
    model.first, model.last = piece == 0, piece == pieces - 1
    if not model.first:
        model.position_embedding = None
    if not model.last:
        del model.norm
        model.head = None
    if not model.first and not (model.last and model.config.tie_embeddings):
        del model.embedding
    return model


def others(batch: Rows) -> Rows:
    """What every stage gets beside the output of the one before; later stages may look token ids up."""
    return {"ids" if name == "tokens" else name: value for name, value in batch.items()}


class Pipeline:
    """The pieces of the model in this process: piece p is in stage p mod stages."""

    def __init__(self, parts: list[Decoder], mesh: Mesh, device: torch.device) -> None:
        self.parts, self.mesh, self.device = parts, mesh, device
        self.group = mesh.dense.get_group("pipeline")
        self._schedules: dict[tuple[int, ...], Any] = {}
        self._stages: list[PipelineStage] = []
        self._weight: Tensor | float = 1.0
        self._objective: Objective | None = None
        self._losses: list[Tensor] = []

    @property
    def last(self) -> bool:
        return self.parts[-1].last

    def backward(
        self, batches: list[Rows], weight: Tensor | float, objective: Objective | None = None
    ) -> list[Tensor]:
        """Forward and backward of micro-batches of one shape: accumulates the gradients of `weight` x the sum of their
        losses, or of what `objective` makes of each; returns each one's losses [B, T] in the last stage, none in the others."""
        schedule = self._schedule(len(batches), tuple(batches[0]["tokens"].shape))
        for part in self.parts:
            part.statistics.loss_weight = weight
        rows = [others(batch) for batch in batches]
        first = [(batch["tokens"],) for batch in batches]
        self._weight, self._objective, self._losses = weight, objective, []
        for stage in self._stages:
            stage.has_backward = True
            stage.clear_runtime_states()
        schedule._step_microbatches(first, rows, list(range(len(batches))), [], False)
        return self._losses

    def _loss(self, output: Tensor, number: int) -> Tensor:
        self._losses.append(output.detach())
        return (output.sum() if self._objective is None else self._objective(output, number)) * self._weight

    def _schedule(self, count: int, shape: tuple[int, ...]) -> Any:
        from torch.distributed import pipelining
        from torch.distributed.pipelining import PipelineStage
        from torch.distributed.pipelining.schedules import PipelineScheduleSingle

        kinds: dict[str, Callable[..., Any]] = {
            "gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B,
            "interleaved": pipelining.ScheduleInterleaved1F1B,
            "zero_bubble": pipelining.ScheduleInterleavedZeroBubble,
        }  # fmt: skip
        if (count, *shape) not in self._schedules:  # ramps change count and shape
            config = self.mesh.config
            numbers = [self.mesh.stage + i * config.pipeline for i in range(len(self.parts))]
            stages = [
                PipelineStage(
                    part, number, config.pieces, self.device, *self._shapes(part, shape), group=self.group
                )
                for number, part in zip(numbers, self.parts, strict=True)
            ]
            kind = kinds[config.schedule]
            given: Any = stages[0] if issubclass(kind, PipelineScheduleSingle) else stages  # type: ignore[arg-type]
            made = kind(given, n_microbatches=count, loss_fn=self._loss, scale_grads=False)
            self._schedules = {(count, *shape): made}
            self._stages = stages
        return self._schedules[(count, *shape)]

    def _shapes(self, part: Decoder, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Input and output of a piece, on the meta device: otherwise PyTorch runs a first pass, which would be counted."""
        B, T = shape
        with torch.device("meta"):
            hidden = torch.empty(B, T // part.split.size, part.config.stage_width, requires_grad=True)
            tokens, loss = torch.empty(B, T, dtype=torch.int64), torch.empty(B, T, requires_grad=True)
        return tokens if part.first else hidden, loss if part.last else hidden

    def forward(self, batch: Rows) -> Tensor:
        """Losses [B, T] of rows, in every stage, without gradients: one piece after the other."""
        config, ranks = self.mesh.config, dist.get_process_group_ranks(self.group)
        B, T = batch["tokens"].shape
        found = torch.empty(B, T, device=self.device)
        for piece in range(config.pieces):
            if piece % config.pipeline != self.mesh.stage:
                continue
            part = self.parts[piece // config.pipeline]
            x = batch["tokens"]
            if piece:
                x = torch.empty(B, T // part.split.size, part.config.stage_width, device=self.device)
                dist.recv(x, ranks[(piece - 1) % config.pipeline], group=self.group)
            found = part(x, **others(batch))
            if not part.last:
                dist.send(found, ranks[(piece + 1) % config.pipeline], group=self.group)
        if not self.last:
            found = torch.empty(B, T, device=self.device)
        dist.broadcast(found, ranks[(config.pieces - 1) % config.pipeline], group=self.group)
        return found
