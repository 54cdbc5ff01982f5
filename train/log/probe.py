"""A look inside the model: attention, activations and logits in a separate pass over a small part of a batch, at logged steps
alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.model.attend import visible_mask
from corpusmill.train.model.probe import Probe
from corpusmill.train.precision.adapt import uncompiled

if TYPE_CHECKING:
    from corpusmill.train.parallel.model import ParallelModel

# The part of a batch: a forward pass of 256 tokens costs as much as training on 85.
ROWS, POSITIONS = 2, 128


class Inside(NamedTuple):
    """Of all processes; on the device, for which a reader waits."""

    attention_entropy: Tensor  # float64 [layers], nats: mean over heads and scored positions
    attention_entropy_share: (
        Tensor  # float64 [layers]: the same as a share of the logarithm of the visible positions
    )
    attention_logit_max: Tensor  # float64 [layers]: over heads and scored positions
    activation_peak: Tensor  # float64 [layers]: largest element of the residual stream after the layer, mean of all positions
    logit_max: Tensor  # float64: over scored positions and the vocabulary

    def row(self) -> dict[str, Any]:
        """For a row of metrics.jsonl; with one wait for the device."""
        by_layer = self._fields[:-1]
        *values, highest = torch.cat((torch.stack(self[:-1]).flatten(), self.logit_max[None])).tolist()
        layers = len(self.attention_entropy)
        return {
            name: {f"layer_{n}": value for n, value in enumerate(values[i * layers : (i + 1) * layers])}
            for i, name in enumerate(by_layer)
        } | {"logit_max": highest}


@torch.no_grad()
def look_inside(
    model: ParallelModel, batch: Mapping[str, Tensor], device: torch.device, most: int = ROWS
) -> Inside:
    """Attention, activations and logits of the first `ROWS` rows of each process (at most `most`, a micro-batch) and their
    first `POSITIONS`: where attention is causal, these have the same values as in the whole row. No dropout, no gradient; the
    model is unchanged. All processes must call it at the same step. The caller sets autocast.
    """
    names, split = ("tokens", "labels", "documents", "positions"), model.parts[0].split
    last = POSITIONS // split.size * split.size
    part = {name: batch[name][: min(ROWS, most), :last].to(device, non_blocking=True) for name in names}
    training = [piece.training for piece in model.parts]
    handles = []
    for piece in model.parts:
        piece.probe = Probe()
        piece.eval()
        handles += [layer.register_forward_hook(piece.probe.see_layer) for layer in piece.layers.values()]
    try:
        with uncompiled():
            model.losses(part)
        return _inside(model, part)
    finally:
        for handle in handles:
            handle.remove()
        for piece, was in zip(model.parts, training, strict=True):
            piece.probe = None
            piece.train(was)


def _inside(model: ParallelModel, rows: Mapping[str, Tensor]) -> Inside:
    """What the probes of all processes recorded of these rows."""
    scored, positions = rows["labels"] >= 0, rows["positions"]
    layers, lowest = model.config.layers, float("-inf")
    # Of each layer the entropies, the activations, and the logarithms of how many positions are attended to; then the positions
    # scored, and all.
    sums = torch.zeros(3 * layers + 2, dtype=torch.float64, device=scored.device)
    windows = model.config.windows
    # Of each layer the highest logit of attention; then that of the head.
    highest = torch.full((layers + 1,), lowest, dtype=torch.float64, device=scored.device)
    for piece in model.parts:
        assert piece.probe
        found = zip(piece.layers, piece.probe.attention, piece.probe.activations, strict=True)
        for number, (entropy, logit), activation in found:
            sums[int(number)] = (entropy * scored).sum()
            highest[int(number)] = logit.masked_fill(~scored, lowest).amax()
            sums[layers + int(number)] = activation.double().sum()
            window = windows.get(int(number), positions.shape[1])
            if model.config.causal:
                seen = (positions + 1).clamp(max=window)
            else:
                seen = visible_mask(positions, rows["documents"], window, causal=False).sum(-1).squeeze(1)
            sums[2 * layers + int(number)] = (seen.double().log() * scored).sum()
        if piece.probe.highest is not None:
            highest[-1] = piece.probe.highest.masked_fill(~scored, lowest).amax()
    sums[-2] = scored.sum()
    sums[-1] = scored.numel() // model.parts[0].split.size
    stages = 1
    if model.mesh is not None:
        stages = model.mesh.stages  # which have other layers of the same positions
        dist.all_reduce(sums)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
    entropies, activations, visible = sums[:-2].view(3, layers) * stages
    scored_positions, every = sums[-2:]
    # Without a position that sees more than itself there is no maximum.
    share = torch.where(visible > 0, entropies / visible, 1.0)
    mean = entropies / scored_positions.clamp(min=1)
    return Inside(mean, share, highest[:layers], activations / every, highest[-1])
