"""What one pass of a decoder is examined for, by `corpusmill.train.log.probe`; without one a decoder records nothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor


class Probe:
    """What `corpusmill.train.log.probe` examines in one pass: each layer's `attention` (entropy and highest logit, [B, T]) and
    the largest element of its output at each of this process's positions (`activations`, [B, T / n]), and, in the stage with
    the head, the `highest` logit [B, T] of its part of the vocabulary."""

    def __init__(self) -> None:
        self.attention: list[tuple[Tensor, Tensor]] = []
        self.activations: list[Tensor] = []
        self.highest: Tensor | None = None

    def see_layer(self, _layer: Any, _inputs: Any, outputs: tuple[Tensor, Any]) -> None:
        """A forward hook of a layer, whose output is the residual stream and what its router did."""
        self.activations.append(outputs[0].detach().abs().amax(-1))

    def see_logits(self, logits: Tensor, known: int) -> None:
        """logits [B, T, V], of which the first `known` are of tokens, the others of padding."""
        logits = logits.float()
        logits[..., max(known, 0) :] = float("-inf")
        self.highest = logits.amax(-1)
