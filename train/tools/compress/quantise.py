"""Weights in few bits: round to nearest, by GPTQ (Frantar et al. 2023) or AWQ (Lin et al. 2024), a scale in float16 for each row or
group of a row, and in at most four bits a zero point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 128  # columns after which GPTQ's errors reach the columns further right
DAMPING = 0.01  # of the mean diagonal, added to the diagonal
GRID = 20  # powers of activations that AWQ tries
FEW = 4  # bits, up to which a group's scale and zero point are searched for
# Of the range of a group's weights, what its codes reach: the largest weights may lie beyond, the others are in finer steps.
REACH = (0.8, 0.85, 0.9, 0.95, 1.0)
# Of scales in float16: below the first one, rounding the scale could move the largest weight by more than half of it.
LEAST, MOST = 2.0**-17, torch.finfo(torch.float16).max


class Quantised(NamedTuple):
    """`codes`: int8 [rows, in], 0 for a weight of 0; `scales`: float16 [rows, groups], positive, each of `group` neighbouring weights of
    a row, the last one's perhaps fewer; `lowest`: int8 [rows, groups], the smallest code that a group may have, at most 0 (its zero
    point is `-lowest` where codes are stored from 0 on)."""

    codes: Tensor
    scales: Tensor
    lowest: Tensor
    group: int

    def values(self) -> Tensor:
        """codes x scales, float32 [rows, in]."""
        spread = self.scales.float().repeat_interleave(self.group, dim=1)
        return self.codes * spread[:, : self.codes.shape[1]]


class Grid(NamedTuple):
    """What values groups of weights can take: `scale`, float16, times whole numbers from `lowest` on, both [.., 1]."""

    scale: Tensor
    lowest: Tensor


def highest(bits: int) -> int:
    """The largest code without a zero point; the smallest one is one further from 0."""
    return int(2 ** (bits - 1)) - 1


def quantise(
    weight: Tensor, bits: int, group: int | None = None, importance: Tensor | None = None
) -> Quantised:
    """Round `weight` [rows, in] to nearest; `group`: weights of a row that share a scale (None: all of them).

    In more than `FEW` bits the largest weight has the largest code, and no value is further from its weight than half a scale. In `FEW`
    and fewer, a group has no larger squared error than that would give; `importance` [in] is what squares are multiplied with (None: 1).
    """
    width = weight.shape[1]
    group = min(group or width, width)
    parts = _grouped(weight, group)
    weights = None if importance is None else _grouped(importance[None], group)[0]
    return _on_grid(parts, _grid(parts, bits, weights), bits, width)


def regrouped(weight: Tensor, bits: int, group: int) -> Quantised:
    """As `quantise`, but with the very values of groups that are values of so few bits already, as those of larger groups' parts are."""
    parts = _grouped(weight, group)
    grid, last = _grid(parts, bits), 2**bits - 1
    largest = parts.abs().amax(-1, keepdim=True)
    for most in range(last, 0, -1):  # the code of the largest weight
        scale = _half(largest / most)
        codes = (parts / scale.float()).round()
        lowest = codes.amin(-1, keepdim=True).clamp(max=0)
        exact = (codes * scale.float() == parts).all(-1, keepdim=True)
        exact &= codes.amax(-1, keepdim=True) - lowest <= last
        grid = Grid(torch.where(exact, scale, grid.scale), torch.where(exact, lowest, grid.lowest))
    return _on_grid(parts, grid, bits, weight.shape[1])


def gptq(weight: Tensor, hessian: Tensor, bits: int, group: int, damping: float = DAMPING) -> Quantised:
    """Round `weight` [rows, in] column by column, each time moving the columns to the right so that the product's outputs change
    least. `hessian` [in, in]: the mean of x x^T over inputs x, whose diagonal weights the errors by which a group's scale is chosen.
    Features that were never seen are rounded to nearest.
    """
    weight, hessian = weight.double().clone(), hessian.double().clone()
    rows, width = weight.shape
    group = min(group, width)
    diagonal = hessian.diagonal()  # a view
    mean = diagonal.mean()
    diagonal[diagonal == 0] = mean if mean > 0 else 1.0
    diagonal += damping * mean
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
    upper = torch.linalg.cholesky(inverse, upper=True)
    codes = torch.empty(rows, width, dtype=torch.int8, device=weight.device)
    grids: list[Grid] = []
    step = max(BLOCK // group, 1) * group
    for first in range(0, width, step):
        last = min(first + step, width)
        errors = weight.new_zeros(rows, last - first)
        for column in range(first, last):
            if column % group == 0:
                here = slice(column, column + group)
                grids.append(_grid(weight[:, here], bits, diagonal[here]))
            code = _codes(weight[:, column, None], grids[-1], bits)
            codes[:, column] = code[:, 0].to(torch.int8)
            error = (weight[:, column] - (code * grids[-1].scale.double())[:, 0]) / upper[column, column]
            weight[:, column:last] -= error[:, None] * upper[column, column:last]
            errors[:, column - first] = error
        weight[:, last:] -= errors @ upper[first:last, last:]
    scales, lowest = (torch.cat(parts, dim=1) for parts in zip(*grids, strict=True))
    return Quantised(codes, scales, lowest.to(torch.int8), group)


def awq(weights: Sequence[Tensor], hessian: Tensor, means: Tensor, bits: int, group: int) -> list[Tensor]:
    """What `weights` [rows, in] of products with the same inputs stand for after rounding to nearest of W diag(s), float32.

    s, rounded to float16 and the same for all of them, is mean |x|^a with the a of `GRID` between 0 and 1 with which the products'
    outputs change least; plain rounding is tried too, so it is never worse than that. `hessian` [in, in]: the mean of x x^T over
    inputs x; `means` [in]: of |x|. Where the paper searches by outputs for where to clip weights, squares of errors are weighted by those
    of inputs.
    """
    plain, hessian = [weight.float() for weight in weights], hessian.float()
    best = [quantise(weight, bits, group).values() for weight in plain]
    least = _changed(plain, best, hessian)
    for step in range(GRID):
        scale = means.clamp(min=1e-4).pow(step / GRID)
        scale = (scale / (scale.max() * scale.min()).sqrt()).half().clamp(min=LEAST).float()
        # Else the weights that s makes large would be those that scales may leave beyond their reach.
        importance = hessian.diagonal() / scale.square()
        found = [quantise(weight * scale, bits, group, importance).values() / scale for weight in plain]
        error = _changed(plain, found, hessian)
        if error < least:
            best, least = found, error
    return best


def _changed(before: Sequence[Tensor], after: Sequence[Tensor], hessian: Tensor) -> float:
    """The mean square of what changes in the products' outputs."""
    changes = (b - a for b, a in zip(after, before, strict=True))
    return sum(float((change @ hessian * change).sum()) for change in changes)


def _grouped(weight: Tensor, group: int) -> Tensor:
    """[rows, groups, group] of a weight [rows, in], float32; the last group is filled up with 0."""
    return F.pad(weight.float(), (0, -weight.shape[1] % group)).view(len(weight), -1, group)


def _on_grid(parts: Tensor, grid: Grid, bits: int, width: int) -> Quantised:
    """The nearest values to groups of weights, of rows of `width`."""
    codes = _codes(parts, grid, bits).flatten(1)[:, :width].to(torch.int8)
    return Quantised(codes, grid.scale[..., 0], grid.lowest[..., 0].to(torch.int8), parts.shape[-1])


def _grid(parts: Tensor, bits: int, importance: Tensor | None = None) -> Grid:
    """Of groups of weights [.., group]: that without a zero point by which the largest weight has the largest code; in few bits the one
    with the least squared error among it, those by which the largest weight, whatever its sign, has the code furthest from 0 or lies a
    little beyond it, and those that reach from the smallest weight to the largest or a little less far; then with the scale of least
    squares for the codes of that one, if this is better still."""
    largest = parts.gather(-1, parts.abs().argmax(-1, keepdim=True))
    last = 2**bits - 1  # steps from the smallest code to the largest
    middle = torch.full_like(largest, -highest(bits) - 1)
    best = Grid(_half(largest.abs() / highest(bits)), middle)
    if bits > FEW:
        return best
    low, high = parts.amin(-1, keepdim=True).clamp(max=0), parts.amax(-1, keepdim=True).clamp(min=0)
    tries = []
    for reach in REACH:
        tries.append(
            Grid(_half(largest.abs() * reach / -middle), torch.where(largest < 0, middle, middle + 1))
        )
        scale = _half((high - low) * reach / last)
        tries.append(Grid(scale, (low * reach / scale.to(low.dtype)).round().clamp(-last, 0)))
    least = _squares(parts, best, bits, importance)
    for grid in tries:
        best, least = _better(parts, best, least, grid, bits, importance)
    codes = _codes(parts, best, bits)
    weighted = codes if importance is None else codes * importance
    fitted = (weighted * parts).sum(-1, keepdim=True) / (weighted * codes).sum(-1, keepdim=True)
    return _better(parts, best, least, Grid(_half(fitted.nan_to_num()), best.lowest), bits, importance)[0]


def _better(
    parts: Tensor, best: Grid, least: Tensor, other: Grid, bits: int, importance: Tensor | None
) -> tuple[Grid, Tensor]:
    """(the grid of each group, its squared error) with the smaller error of two."""
    errors = _squares(parts, other, bits, importance)
    fewer = errors < least
    chosen = (torch.where(fewer, b, a) for a, b in zip(best, other, strict=True))
    return Grid(*chosen), torch.minimum(errors, least)


def _squares(parts: Tensor, grid: Grid, bits: int, importance: Tensor | None) -> Tensor:
    """[.., 1]"""
    errors = (_codes(parts, grid, bits) * grid.scale.to(parts.dtype) - parts).square()
    return (errors if importance is None else errors * importance).sum(-1, keepdim=True)


def _half(scale: Tensor) -> Tensor:
    return scale.clamp(LEAST, MOST).half()


def _codes(weight: Tensor, grid: Grid, bits: int) -> Tensor:
    """Of weights [.., group], the nearest ones."""
    codes = (weight / grid.scale.to(weight.dtype)).round()
    return torch.clamp(codes, grid.lowest, grid.lowest + (2**bits - 1))
