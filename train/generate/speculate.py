"""Speculative decoding (Leviathan et al. 2023, Chen et al. 2023): a cheap draft proposes tokens, the model reads all of them in
one call and keeps as many as its own distribution allows. What is generated has exactly that distribution, and is at
temperature 0 the same text."""

from __future__ import annotations

from array import array
from bisect import bisect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import ref

import torch
from torch import Tensor
from torch.nn import functional

from corpusmill.train.generate.sample import choices, drawn, sound, uniform

if TYPE_CHECKING:
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
    def propose(self, requests: Sequence[Request], counts: Sequence[int]) -> list[Proposal]:
        """At most so many tokens (at least one) that may follow each request's window."""

    def reserve(self, rows: int) -> None:
        """Take the memory for so many requests more than there are."""

    def forget(self, request: Request) -> None:
        """What is kept for a request that has ended."""


class PromptLookup:
    """What followed the last tokens where they occurred before (Saxena 2023): costs nothing, and helps with code, tables
    and quotations."""

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        self.longest, self.shortest = longest, shortest

    def propose(self, requests: Sequence[Request], counts: Sequence[int]) -> list[Proposal]:
        return [Proposal(self._after(one.window, n)) for one, n in zip(requests, counts, strict=True)]

    def _after(self, window: list[int], count: int) -> list[int]:
        text = array("q", window)
        data, width = text.tobytes(), text.itemsize
        for size in range(min(self.longest, len(window) - 1), self.shortest - 1, -1):
            wanted, end = data[-size * width :], len(data) - width
            while (place := data.rfind(wanted, 0, end)) >= 0:
                if place % width == 0:
                    after = place // width + size
                    return window[after : after + count]
                end = place + len(wanted) - 1  # it began within a token
        return []

    def reserve(self, rows: int) -> None:
        """It needs no memory."""

    def forget(self, request: Request) -> None:
        """It keeps nothing."""


class SmallModel:
    """A smaller model with the same tokenizer, by each request's own filters. It reads all requests' rows in one call, of a cache
    of its own."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._cache = runner.cache(0, 1)
        # By row. Weak: of a request that its engine was left with.
        self._held: list[_Row] = []

    def reserve(self, rows: int) -> None:
        self._drop_ended()
        self._grow(rows)

    def _grow(self, rows: int) -> None:
        held, taken = len(self._held), self._cache
        if held + rows > len(taken.lengths):
            self._cache = self.runner.cache(held + rows, 1)
            self._cache.memory[:, :, :held] = taken.memory[:, :, :held]
            self._cache.lengths[:held] = taken.lengths[:held]

    def forget(self, request: Request) -> None:
        for row, held in enumerate(self._held):
            if held.request() is request:
                self._remove(row)
                return

    def _drop_ended(self) -> None:
        for row in reversed(range(len(self._held))):
            if self._held[row].request() is None:
                self._remove(row)

    def _remove(self, row: int) -> None:
        """Give a row to the last one, so that they stay without a gap."""
        last = len(self._held) - 1
        self._cache.move(last, row)
        self._held[row] = self._held[last]
        self._held.pop()

    def propose(self, requests: Sequence[Request], counts: Sequence[int]) -> list[Proposal]:
        # No more than the model has positions for.
        most = [
            min(count, self.runner.context - len(request.window))
            for request, count in zip(requests, counts, strict=True)
        ]
        proposals = [Proposal([])] * len(requests)
        places = [place for place, count in enumerate(most) if count > 0]
        if places:
            chosen = [requests[place] for place in places]
            for place, found in zip(places, self._drafts(chosen, [most[p] for p in places]), strict=True):
                proposals[place] = found
        return proposals

    def _drafts(self, requests: Sequence[Request], counts: Sequence[int]) -> list[Proposal]:
        self._take_rows(requests)
        cache, runner, samplings = self._cache, self.runner, [request.sampling for request in requests]
        new = [self._unread(row, request) for row, request in enumerate(requests)]
        tokens: list[list[int]] = [[] for _ in requests]
        shares: list[list[Tensor]] = [[] for _ in requests]
        going = [True] * len(requests)
        while True:
            logits = runner.forward(cache, 0, new)
            share = choices(logits, samplings).dense(runner.vocab_size)
            numbers = [
                uniform(r.sampling.seed, r.number, len(r.tokens) + len(t), DRAFTED)
                for r, t in zip(requests, tokens, strict=True)
            ]
            drafted = drawn(share, numbers).tolist()
            for row, fine in enumerate(sound(logits)):
                if going[row] and fine:
                    tokens[row].append(drafted[row])
                    shares[row].append(share[row])
                going[row] &= fine and len(tokens[row]) < counts[row] and drafted[row] != runner.eos_id
            if not any(going):
                break
            for row, goes in enumerate(going):
                # A row that is done reads its last token once more: then no other row has to move.
                new[row] = [drafted[row]] if goes else new[row][-1:]
                if not goes:
                    cache.cut(row, cache.lengths[row] - 1)
        for row, request in enumerate(requests):
            self._held[row].known[:] = [*request.window, *tokens[row][:-1]]
        return [
            Proposal(t, torch.stack(s)) if t else Proposal([]) for t, s in zip(tokens, shares, strict=True)
        ]

    def _take_rows(self, requests: Sequence[Request]) -> None:
        """The first rows are those of the requests, in their order."""
        self._drop_ended()
        rows = {id(held.request()): row for row, held in enumerate(self._held)}
        new = [request for request in requests if id(request) not in rows]
        self._grow(len(new))
        for request in new:
            rows[id(request)] = len(self._held)
            self._cache.lengths[len(self._held)] = 0
            self._held.append(_Row(ref(request), []))
        for row, request in enumerate(requests):
            other = rows[id(request)]
            if other != row:
                self._cache.swap(row, other)
                self._held[row], self._held[other] = self._held[other], self._held[row]
                rows[id(self._held[other].request())] = other

    def _unread(self, row: int, request: Request) -> list[int]:
        """The last one or two tokens of a window that the model has not read; what is before them it reads here."""
        known, window = self._held[row].known, request.window
        # How many tokens the two begin with in common: slices are compared faster than tokens one by one.
        sizes = range(1, min(len(known), len(window) - 1) + 1)
        same = bisect(sizes, False, key=lambda size: known[:size] != window[:size])
        self._cache.cut(row, same)
        if len(window) - same <= 2:  # as after a proposal that was accepted: padding of one position
            return window[same:]
        self.runner.hidden(self._cache, row, [window[same:-1]])
        return window[-1:]


class _Row(NamedTuple):
    request: ref[Request]
    known: list[int]  # tokens whose positions the cache has


def accepted(shares: Tensor, proposal: Proposal, number: Callable[[int, int], float]) -> list[int]:
    """The tokens that come next: those of the proposal up to the first that is refused, and one more.

    `shares` float32 [g + 1, V]: the model's distribution after each of the proposal's tokens. `number(i, use)`: independent
    numbers in [0, 1). A token x is kept with the probability min(1, p(x) / q(x)); instead of one that is refused comes a
    draw from max(0, p - q).
    """
    tokens, drafted = proposal.tokens, proposal.shares
    ids = torch.tensor(tokens, dtype=torch.int64, device=shares.device)[:, None]
    likely = shares[: len(tokens)].gather(1, ids).flatten().tolist()
    proposed = [1.0] * len(tokens) if drafted is None else drafted.gather(1, ids).flatten().tolist()
    for place in range(len(tokens)):
        if number(place, ACCEPTED) * proposed[place] < likely[place]:
            continue
        p = shares[place]
        q = functional.one_hot(ids[place, 0], len(p)) if drafted is None else drafted[place]
        rest = (p - q).clamp(min=0.0)
        # Nothing is left where p and q are equal but for rounding.
        left = rest if bool(rest.any()) else p
        return [*tokens[:place], int(drawn(left[None], [number(place, REPLACED)])[0])]
    return [*tokens, int(drawn(shares[-1:], [number(len(tokens), 0)])[0])]
