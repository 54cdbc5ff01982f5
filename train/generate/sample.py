"""The choice of a token: filters of the distribution, and a draw that depends on the request alone.

Penalties: repetition as in CTRL (Keskar et al. 2019), presence and frequency as in OpenAI's API. top-k (Fan et al. 2018), top-p
(Holtzman et al. 2020), min-p (Nguyen et al. 2024), locally typical (Meister et al. 2022): each on the renormalised
distribution that the one before it has left, in the order of transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from corpusmill.schemas.generation import Sampling

MASK = (1 << 64) - 1


class Penalties:
    """The tokens that a text and its prompt have, for the penalties of one request; and its biases."""

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], vocab_size: int, device: torch.device
    ) -> None:
        self.sampling = sampling
        self.counts = torch.zeros(vocab_size, device=device)
        self.seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        self.seen[torch.tensor(prompt, dtype=torch.int64, device=device)] = True
        self.bias: Tensor | None = None
        if sampling.logit_bias:
            self.bias = torch.zeros(vocab_size, device=device)
            tokens = torch.tensor(list(sampling.logit_bias), device=device)
            self.bias[tokens] = torch.tensor(list(sampling.logit_bias.values()), device=device)

    @staticmethod
    def needed(sampling: Sampling) -> bool:
        return (
            sampling.repetition_penalty != 1.0
            or sampling.presence_penalty != 0.0
            or sampling.frequency_penalty != 0.0
            or bool(sampling.logit_bias)
        )

    def add(self, token: int) -> None:
        self.counts[token] += 1
        self.seen[token] = True

    def apply(self, logits: Tensor) -> Tensor:
        """Of logits [V], which stay as they are."""
        given = self.sampling
        factor = given.repetition_penalty
        moved = torch.where(logits > 0, logits / factor, logits * factor)
        found = torch.where(self.seen, moved, logits)
        found = found - given.presence_penalty * (self.counts > 0) - given.frequency_penalty * self.counts
        return found if self.bias is None else found + self.bias


class Choice:
    """Filtered distributions of B rows: `ids` int64 [B, n] (None: 0 .. n-1) and `shares` float32 [B, n], which sum to 1."""

    def __init__(self, ids: Tensor | None, shares: Tensor) -> None:
        self.ids, self.shares = ids, shares

    def dense(self, vocab_size: int) -> Tensor:
        """The probabilities by token id, float32 [B, V]."""
        if self.ids is None:
            return self.shares
        return self.shares.new_zeros(len(self.shares), vocab_size).scatter_(1, self.ids, self.shares)

    def draw(self, uniforms: Sequence[float]) -> Tensor:
        """One token id for each row, int64 [B], by numbers in [0, 1)."""
        place = drawn(self.shares, uniforms)
        return place if self.ids is None else self.ids.gather(1, place[:, None]).squeeze(1)


def drawn(shares: Tensor, uniforms: Sequence[float]) -> Tensor:
    """The place in each row of `shares` [B, n] where their running sum passes the row's number times the whole sum; the last one
    in a row of values that are not finite."""
    sums = shares.cumsum(1, dtype=torch.float64)
    # Below the whole sum even after rounding, since a number is at most 1 - 2^-53.
    wanted = torch.tensor(uniforms, dtype=torch.float64, device=shares.device)[:, None] * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True).squeeze(1).clamp_(max=shares.shape[1] - 1)


def sound(logits: Tensor) -> list[bool]:
    """For each row of logits [B, V]: whether a token can be chosen by them. Some may be minus infinity, but not all."""
    found: list[bool] = logits.amax(-1).isfinite().tolist()
    return found


def choices(logits: Tensor, settings: Sequence[Sampling]) -> Choice:
    """What may follow, of logits float32 [B, V] after penalties, by the settings of each row."""

    def column(values: Sequence[float]) -> Tensor | float:
        if min(values) == max(values):  # an operation less
            return values[0]
        return torch.tensor(values, dtype=torch.float32, device=logits.device)[:, None]

    greedy = [s.greedy for s in settings]
    if all(greedy):
        best = logits.argmax(-1, keepdim=True)
        return Choice(best, torch.ones_like(best, dtype=torch.float32))
    warmth = [1.0 if s.greedy else s.temperature for s in settings]
    x = logits / torch.tensor(warmth, device=logits.device)[:, None]
    size = x.shape[1]
    most = [min(s.top_k or size, size) for s in settings]
    ids: Tensor | None = None
    if max(most) < size:
        x, ids = x.topk(max(most), dim=-1)
    elif any(k < size or s.top_p < 1 or s.typical_p < 1 for k, s in zip(most, settings, strict=True)):
        x, ids = descending(x)
    if ids is not None and min(most) < x.shape[1]:
        rank = torch.arange(x.shape[1], device=x.device)
        x = x.masked_fill(rank >= torch.tensor(most, device=x.device)[:, None], float("-inf"))
    shares = x.softmax(-1)
    if any(s.top_p < 1 for s in settings):
        before = shares.cumsum(-1) - shares
        kept = before < column([s.top_p if s.top_p < 1 else 2.0 for s in settings])
        kept[:, :1] = True  # a mass that float32 rounds to 0 leaves one
        shares = _kept(shares, kept)
    if any(s.min_p > 0 for s in settings):
        least = column([s.min_p for s in settings]) * shares.amax(-1, keepdim=True)
        shares = _kept(shares, shares >= least)
    if any(s.typical_p < 1 for s in settings):
        shares = _kept(
            shares, _typical(shares, column([s.typical_p if s.typical_p < 1 else 2.0 for s in settings]))
        )
    if any(greedy):
        # Of equal values the first, as argmax has it: sorting would not.
        best = logits.argmax(-1, keepdim=True)
        wanted = torch.zeros_like(shares)
        place = best if ids is None else (ids == best).int().argmax(-1, keepdim=True)
        chosen = torch.tensor(greedy, device=shares.device)[:, None]
        shares = torch.where(chosen, wanted.scatter_(1, place, 1.0), shares)
    return Choice(ids, shares)


def descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of float32 [B, n] in descending order, and the place that each value had, int64 [B, n]; equal values stay in their order.

    On a CPU some four times as fast as PyTorch's sort: each value and its place are one int64, which NumPy sorts by vector
    instructions.
    """
    if x.device.type != "cpu":
        values, places = x.sort(dim=-1, descending=True, stable=True)
        return values, places
    bits = (x + 0.0).view(torch.int32)  # of -0.0 as of 0.0
    ascending = bits ^ (bits >> 31 & 0x7FFFFFFF)  # as integers in the order of the numbers
    keys = (~ascending).long() << 32 | torch.arange(x.shape[1])
    keys.numpy().sort(axis=1)
    places = keys & 0xFFFFFFFF
    return x.gather(1, places), places


def _kept(shares: Tensor, kept: Tensor) -> Tensor:
    left = torch.where(kept, shares, 0.0)
    return left / left.sum(-1, keepdim=True)


def _typical(shares: Tensor, mass: Tensor | float) -> Tensor:
    """Which tokens stay: those whose information is nearest to the entropy, the fewest that hold `mass`."""
    information = -shares.log()
    entropy = torch.special.entr(shares).sum(-1, keepdim=True)
    distance = torch.where(shares > 0, (information - entropy).abs(), float("inf"))
    order = distance.argsort(dim=-1, stable=True)
    ordered = shares.gather(1, order)
    first = ordered.cumsum(-1) - ordered < mass
    first[:, :1] = True
    return torch.zeros_like(first).scatter_(1, order, first)


def uniform(seed: int, request: int, position: int, use: int = 0) -> float:
    """A number in [0, 1) of these alone: a text depends neither on the batch that it is made in nor on its place there.

    SplitMix64's finaliser (Steele et al. 2014) over the words; `use` tells several numbers of one position apart.
    """
    state = 0x9E3779B97F4A7C15
    for word in (seed, request, position, use):
        state = _mixed((state + _mixed(word & MASK)) & MASK)
    return (state >> 11) * 2.0**-53


def _mixed(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)
