"""Speculative decoding (Leviathan et al. 2023, Chen et al. 2023): a cheap draft proposes tokens, the model reads all of them in
one call and keeps as many as its own distribution allows. What is generated has exactly that distribution, and is at
temperature 0 the same text."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from corpusmill.train.generate.sample import choices, drawn, sound, uniform

if TYPE_CHECKING:
    from corpusmill.train.generate.cache import Cache
    from corpusmill.train.generate.request import Request
    from corpusmill.train.generate.runner import Runner

DRAFTED, ACCEPTED, REPLACED = (
    1,
    2,
    3,
)  # uses of `uniform`; the token after all accepted ones has 0, as without a draft


class Proposal(NamedTuple):
    """`shares`, float32 [g, V]: the distributions that the tokens were drawn from; None: there was no choice."""

    tokens: list[int]
    shares: Tensor | None = None


class Draft(Protocol):
    def propose(self, request: Request, count: int) -> Proposal:
        """At most `count` tokens that may follow the request's window."""

    def reserve(self, rows: int) -> None:
        """Take the memory for so many requests at a time."""

    def forget(self, request: Request) -> None:
        """What is kept for a request that has ended."""


class PromptLookup:
    """What followed the last tokens where they occurred before (Saxena 2023): costs nothing, and helps with code, tables
    and quotations."""

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        self.longest, self.shortest = longest, shortest

    def propose(self, request: Request, count: int) -> Proposal:
        window = request.window
        for size in range(min(self.longest, len(window) - 1), self.shortest - 1, -1):
            wanted = window[-size:]
            for start in range(len(window) - size - 1, -1, -1):
                if window[start : start + size] == wanted:
                    return Proposal(window[start + size : start + size + count])
        return Proposal([])

    def reserve(self, rows: int) -> None:
        """It needs no memory."""

    def forget(self, request: Request) -> None:
        """It keeps nothing."""


class SmallModel:
    """A smaller model with the same tokenizer, by the request's own filters. It has a cache of its own for each row of an
    engine."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._free: list[Cache] = []
        # Weak: of a request that its engine was left with.
        self._caches: WeakKeyDictionary[Request, tuple[Cache, list[int]]] = WeakKeyDictionary()

    def reserve(self, rows: int) -> None:
        self._free += [self.runner.cache(1) for _ in range(rows - len(self._free))]

    def forget(self, request: Request) -> None:
        if (known := self._caches.pop(request, None)) is not None:
            self._free.append(known[0])

    def propose(self, request: Request, count: int) -> Proposal:
        count = min(count, self.runner.context - len(request.window))
        if count < 1:
            return Proposal([])
        if request not in self._caches:
            self._caches[request] = (self._free.pop() if self._free else self.runner.cache(1), [])
        cache, known = self._caches[request]
        # How many tokens the two begin with in common: slices are compared faster than tokens one by one.
        sizes = range(1, min(len(known), len(request.window) - 1) + 1)
        same = bisect(sizes, False, key=lambda size: known[:size] != request.window[:size])
        cache.cut(0, same)
        new, tokens, shares = request.window[same:], list[int](), list[Tensor]()
        place = len(request.tokens)
        while True:
            logits = self.runner.forward(cache, 0, [new])
            if not all(sound(logits)):
                break
            share = choices(logits, [request.sampling]).dense(self.runner.vocab_size)
            number = uniform(request.sampling.seed, request.number, place + len(tokens), DRAFTED)
            tokens.append(int(drawn(share, [number])[0]))
            shares.append(share[0])
            new = tokens[-1:]
            if len(tokens) == count or tokens[-1] == self.runner.eos_id:
                break
        known[:] = [*request.window, *tokens[:-1]]
        return Proposal(tokens, torch.stack(shares)) if tokens else Proposal([])


def accepted(shares: Tensor, proposal: Proposal, number: Callable[[int, int], float]) -> list[int]:
    """The tokens that come next: those of the proposal up to the first that is refused, and one more.

    `shares` float32 [g + 1, V]: the model's distribution after each of the proposal's tokens. `number(i, use)`: independent
    numbers in [0, 1). A token x is kept with the probability min(1, p(x) / q(x)); instead of one that is refused comes a
    draw from max(0, p - q).
    """
    found: list[int] = []
    for place, token in enumerate(proposal.tokens):
        p = shares[place]
        if proposal.shares is None:
            drafted = torch.zeros_like(p)
            drafted[token] = 1.0
        else:
            drafted = proposal.shares[place]
        if number(place, ACCEPTED) * float(drafted[token]) < float(p[token]):
            found.append(token)
            continue
        rest = (p - drafted).clamp(min=0.0)
        # Nothing is left where p and q are equal but for rounding.
        left = rest if bool(rest.any()) else p
        found.append(int(drawn(left[None], [number(place, REPLACED)])[0]))
        return found
    found.append(int(drawn(shares[-1:], [number(len(proposal.tokens), 0)])[0]))
    return found
