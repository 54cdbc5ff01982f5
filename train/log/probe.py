"""What attention and logits look like inside: a pass of its own over a small piece of a batch, at logged steps alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.model.statistics import Probe
from corpusmill.train.precision.adapt import uncompiled

if TYPE_CHECKING:
    from corpusmill.train.parallel.model import ParallelModel

ROWS, POSITIONS = 2, 128  # of the piece, at most: 256 tokens forward cost what 85 cost to train on


class Inside(NamedTuple):
    """On the device, of all processes: reading them is what waits for it."""

    attention_entropy: Tensor  # float64 [layers], nats: mean over heads and scored positions
    logit_max: Tensor  # over scored positions and the vocabulary

    def row(self) -> dict[str, Any]:
        """For a row of metrics.jsonl."""
        entropies = enumerate(self.attention_entropy.tolist())
        return {
            "attention_entropy": {f"layer_{number}": value for number, value in entropies},
            "logit_max": float(self.logit_max),
        }


@torch.no_grad()
def look_inside(
    model: ParallelModel, batch: Mapping[str, Tensor], device: torch.device, most: int = ROWS
) -> Inside:
    """Of the first `ROWS` rows of each process (`most` of them: a micro-batch) and their first `POSITIONS`: attention is
    causal, so these positions have there exactly what they have in the whole row. No dropout; no gradient; weights and
    sums of the model stay as they are. All processes must call it at the same step. Autocast is the caller's.
    """
    names, split = ("tokens", "labels", "documents", "positions"), model.parts[0].split
    last = POSITIONS // split.size * split.size
    part = {name: batch[name][: min(ROWS, most), :last].to(device, non_blocking=True) for name in names}
    training = [piece.training for piece in model.parts]
    for piece in model.parts:
        piece.probe = Probe()
        piece.eval()
    try:
        with uncompiled():
            model.losses(part)
        return _inside(model, part["labels"] >= 0)
    finally:
        for piece, was in zip(model.parts, training, strict=True):
            piece.probe = None
            piece.train(was)


def _inside(model: ParallelModel, scored: Tensor) -> Inside:
    """What the pieces here were left with, and those of all other processes."""
    sums = torch.zeros(model.config.layers + 1, dtype=torch.float64, device=scored.device)
    highest = torch.full((), float("-inf"), device=scored.device)
    for piece in model.parts:
        assert piece.probe
        for number, entropy in zip(piece.layers, piece.probe.entropies, strict=True):
            sums[int(number)] = (entropy * scored).sum()
        if piece.probe.highest is not None:
            highest = piece.probe.highest.masked_fill(~scored, float("-inf")).amax()
    sums[-1] = scored.sum()
    stages = 1
    if model.mesh is not None:
        stages = model.mesh.stages  # which have other layers of the same positions
        dist.all_reduce(sums)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
    return Inside(sums[:-1] * stages / sums[-1].clamp(min=1), highest)
