"""Weights and layers left out: the smallest ones by magnitude or by Wanda (Sun et al. 2024), compared within a row, and layers by block
importance (ShortGPT, Men et al. 2024)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.train.model.decoder import Decoder


def scores(weight: Tensor, squares: Tensor | None = None) -> Tensor:
    """How much each weight [rows, in] counts: its magnitude, or with the mean `squares` [in] of inputs Wanda's, |W_ij| x ||X_j||."""
    return weight.abs() if squares is None else weight.abs() * squares.sqrt().to(weight.dtype)


def smallest(score: Tensor, share: float) -> Tensor:
    """Which of the scores [rows, in] are the `share` smallest of their row, rounded to whole weights; bool. Of equal ones the first."""
    order = score.argsort(dim=1, stable=True)
    return torch.zeros_like(score, dtype=torch.bool).scatter_(
        1, order[:, : round(share * score.shape[1])], True
    )


def outside(score: Tensor, keep: int, of: int, where: str) -> Tensor:
    """Which of the scores [rows, in] are not among the `keep` largest of each `of` neighbours in a row; bool. Raises `UserError`
    naming the matrix `where` if rows do not divide into such groups."""
    rows, width = score.shape
    if width % of:
        raise UserError(f"--pattern {keep}:{of}: {where} has rows of {width} weights, no multiple of {of}")
    found = smallest(score.reshape(-1, of), (of - keep) / of)
    return found.view(rows, width)


def least_important(importance: Sequence[float], count: int) -> list[int]:
    """The numbers of the `count` layers of least importance, in order. Raises `UserError` if none would be left."""
    if count >= len(importance):
        raise UserError(f"--layers {count}: the model has {len(importance)} layers, and one must be left")
    return sorted(sorted(range(len(importance)), key=lambda number: importance[number])[:count])


@torch.no_grad()
def without_layers(model: Decoder, removed: Collection[int]) -> Decoder:
    """The decoder without some layers, the others numbered in their order. Raises `UserError` where that would put experts into a
    layer that has none by the config."""
    kept = [number for number in range(model.config.layers) if number not in removed]
    config = model.config.model_copy(update={"layers": len(kept)})
    for place, number in enumerate(kept):
        if config.has_experts(place) != model.config.has_experts(number):
            raise UserError(
                f"--layers {len(removed)}: without layers {', '.join(map(str, sorted(removed)))} the layers with experts are others than"
                " model.moe.first and model.moe.every say; remove another number"
            )
    renamed = {f"layers.{number}.": f"layers.{place}." for place, number in enumerate(kept)}
    found = {}
    for name, value in model.state_dict().items():
        prefix = ".".join(name.split(".")[:2]) + "."
        if not name.startswith("layers."):
            found[name] = value
        elif prefix in renamed:
            found[renamed[prefix] + name.removeprefix(prefix)] = value
    smaller = Decoder(config, model.vocab_size).to(model.embedding.weight.device)
    smaller.load_state_dict(found)
    return smaller.eval()
