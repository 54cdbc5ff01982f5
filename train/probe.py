"""What attention and logits look like inside: a pass of its own over a small piece of a batch, at logged steps alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from train.model.decoder import Decoder

ROWS, POSITIONS = 2, 128  # of the piece, at most: 256 tokens forward cost what 85 cost to train on


class Inside(NamedTuple):
    """On the device: reading them is what waits for it."""

    attention_entropy: Tensor  # float32 [layers], nats: mean over heads and scored positions
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
    model: Decoder, batch: Mapping[str, Tensor], device: torch.device, most: int = ROWS
) -> Inside:
    """Of the first `ROWS` rows (`most` of them: a micro-batch) and their first `POSITIONS`: attention is causal, so these positions have there exactly
    what they have in the whole row. No dropout; no gradient; weights and sums of the model stay as they are.

    Autocast is the caller's. With the heads or rows dealt to several processes each one sees its own; where layers
    gather weights (ZeRO-3) or sums (tensor parallel), all processes must call it at the same step.
    """
    names = ("tokens", "documents", "positions", "labels")
    part = {name: batch[name][: min(ROWS, most), :POSITIONS].to(device, non_blocking=True) for name in names}
    training, model.entropies = model.training, []
    model.eval()
    try:
        with uncompiled():
            logits = model(part["tokens"], None, part["documents"], part["positions"])
        entropies = torch.stack(model.entropies)  # [layers, rows, positions]
    finally:
        model.entropies = None
        model.train(training)
    scored = part["labels"] >= 0
    mean = (entropies * scored).sum((1, 2)) / scored.sum().clamp(min=1)
    highest = logits[..., : model.vocab_size].amax(-1).float()
    return Inside(mean, highest.masked_fill(~scored, float("-inf")).amax())


def uncompiled() -> AbstractContextManager[Any]:
    """Compiled layers run as they are written: another shape than the training's is not worth compiling for."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
