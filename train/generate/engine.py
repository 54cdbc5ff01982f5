"""Many texts at once: rows of one cache that come and go, each at a length of its own (continuous batching, Yu et al. 2022).

A request waits until a row is free. Its prompt is read in chunks, so that the other rows never wait for more than one chunk
between two of their tokens; then all rows get a token each with every step. Requests that share a prompt wait until one of them has
read it, and copy its row. The tokens of a request depend on its own prompt, settings and seed, not on what else is generated.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from corpusmill.common.errors import WorkError
from corpusmill.train.generate.request import End, Event, Likeliest, Request, Scored
from corpusmill.train.generate.sample import Penalties, choices, sound, uniform
from corpusmill.train.generate.speculate import Draft, Proposal, accepted

if TYPE_CHECKING:
    from corpusmill.train.generate.runner import Runner

LOGITS = 1 << 24  # of proposals that are judged together, at most (or those of a position for each row)


class Engine:
    """Generates for up to `rows` requests at a time with a model of `context` positions.

    A text that outgrows the context goes on with the second half of it (`slide`), or ends. `draft` proposes up to `drafted` tokens
    at a time (`speculate`), but not for requests with penalties or constraints.
    """

    def __init__(
        self, runner: Runner, rows: int = 16, *, chunk: int = 256, slide: bool = True, draft: Draft | None = None,
        drafted: int = 4,
    ) -> None:  # fmt: skip
        self.runner, self.rows, self.chunk, self.slide = runner, rows, min(chunk, runner.context), slide
        # Before each text are the places of virtual tokens, whatever ids they have.
        self._before = [runner.eos_id] * runner.virtual
        self._room = runner.virtual + runner.context
        self.draft, self.drafted = draft, drafted
        self.cache = runner.cache(rows, drafted if draft else 0)
        if draft:
            draft.reserve(rows)
        self.waiting: deque[Request] = deque()
        self.active: list[
            Request
        ] = []  # by row: first those that decode, then those whose prompt is being read
        self._decoding = 0

    def check(self, prompt: Sequence[int]) -> None:
        """Raise `ValueError` for a prompt that the context does not hold."""
        if not prompt:
            raise ValueError("the prompt has no token")
        if len(prompt) >= self.runner.context and not self.slide:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, and the model's context {self.runner.context}: shorten it"
            )

    def submit(self, request: Request) -> None:
        """Queue a request. Raises `ValueError` for a prompt that the context does not hold."""
        self.check(request.prompt)
        request.window = [*self._before, *request.prompt[-self.runner.context :]]
        if Penalties.needed(request.sampling):
            request.penalties = Penalties(
                request.sampling, request.prompt, self.runner.vocab_size, self.runner.device
            )
        self.waiting.append(request)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.active)

    def run(self) -> Iterator[Event]:
        """Events until no request is left."""
        while self.busy:
            yield from self.step()

    def step(self) -> list[Event]:
        """One chunk of a prompt, if one is to be read, and one token for each row that decodes."""
        events = self._drop_cancelled()
        self._admit()
        if self._decoding < len(self.active):
            events += self._read_prompts()
        elif self._decoding:
            events += self._decode()
        return events

    def _admit(self) -> None:
        """Give rows to those that wait. One whose prompt is being read by another waits for that, and lets others pass."""
        if not self.waiting or len(self.active) == self.rows:
            return
        sharers: dict[Hashable, list[Request]] = defaultdict(list)
        for request in self.active:
            sharers[request.shared].append(request)
        for request in list(self.waiting):
            if len(self.active) == self.rows:
                return
            others = sharers[request.shared]
            if any(not one.tokens for one in others):
                continue
            self._occupy(request)
            end = len(request.window)
            # A text that has outgrown the context has lost its prompt, or a part of it.
            known = [one for one in others if one.read >= end and one.window[:end] == request.window]
            if known and end > 1:
                self._copy(known[0], request, end - 1)  # the last token is read again, for its logits
            others.append(request)

    def _occupy(self, request: Request) -> None:
        """The next free row for a request that waits."""
        self.waiting.remove(request)
        self.cache.lengths[len(self.active)] = 0
        self.active.append(request)

    def _copy(self, source: Request, target: Request, length: int) -> None:
        """What a request has read of a prompt, for another one that shares it."""
        row = self.active.index(target)
        self.cache.move(self.active.index(source), row)
        self.cache.cut(row, length)
        target.read = length
        if target.scored is not None and source.scored is not None:
            target.scored[:] = source.scored

    def _read_prompts(self) -> list[Event]:
        """A token for the rows that decode, then the next chunk of the prompts of others; a row whose prompt ends with it gets
        its first token."""
        events = self._decode() if self._decoding else []
        first, requests = self._decoding, self.active[self._decoding :]
        if not requests:
            return events
        # As many rows as make one chunk: short prompts are read together.
        parts: list[list[int]] = []
        for number, request in enumerate(requests, 1):
            part = request.window[request.read : request.read + self.chunk]
            width = max(len(part), *map(len, parts), 1)
            furthest = max(r.read for r in requests[:number]) + width  # padding has to fit too
            if parts and (number * width > self.chunk or furthest > self.cache.capacity):
                break
            parts.append(part)
        hidden = self.runner.hidden(self.cache, first, parts, [r.adapter for r in requests[: len(parts)]])
        chosen, rows, lasts = list[Request](), list[int](), list[int]()
        for number, part in enumerate(parts):
            request = requests[number]
            if request.scored is not None and not request.tokens:
                self._score(request, request.scored, hidden[number, : len(part)])
            request.read += len(part)
            if request.read == len(request.window):
                ready = [request, *self._admit_sharers(request)]
                chosen += ready
                rows += [number] * len(ready)
                lasts += [len(part) - 1] * len(ready)
        if rows:
            events += self._take(chosen, self.runner.logits(hidden[rows, lasts]))
            for request in chosen:
                if request in self.active:
                    self._begin_decoding(request)
        return events

    def _admit_sharers(self, request: Request) -> list[Request]:
        """Those that wait for what a request has just read, as many as there are rows."""
        found = [] if request.tokens else [one for one in self.waiting if one.shared == request.shared]
        found = found[: self.rows - len(self.active)]
        for one in found:
            self._occupy(one)
            self._copy(request, one, request.read)
        return found

    def _score(self, request: Request, scored: list[Scored], hidden: Tensor) -> None:
        """Note the log-probabilities of the prompt's tokens that follow what was just read, by its states [T, C]."""
        skipped = max(len(self._before) - request.read, 0)
        if not request.read:
            scored.append(Scored(request.window[skipped], None))
        tokens = request.window[request.read + 1 + skipped : request.read + len(hidden) + 1]
        if tokens:
            known = _known(
                self.runner.logits(hidden[skipped : skipped + len(tokens)]),
                tokens,
                [request.likeliest or 0] * len(tokens),
            )
            scored += [Scored(token, *figures) for token, figures in zip(tokens, known, strict=True)]

    def _decode(self) -> list[Event]:
        events = self._make_room()
        requests = self.active[: self._decoding]
        if not requests:
            return events
        proposals = self._proposals(requests)
        if any(proposal.tokens for proposal in proposals):
            return events + self._verify(requests, proposals)
        newest = [[request.window[-1]] for request in requests]
        logits = self.runner.forward(self.cache, 0, newest, [request.adapter for request in requests])
        for request in requests:
            request.read += 1
        return events + self._take(requests, logits)

    def _proposals(self, requests: Sequence[Request]) -> list[Proposal]:
        found = [Proposal([])] * len(requests)
        if self.draft is None:
            return found
        counts = [
            0 if one.penalties or one.allowed
            else min(self.drafted, one.sampling.max_tokens - len(one.tokens) - 1, self._room - len(one.window))
            for one in requests
        ]  # fmt: skip
        rows = [row for row, count in enumerate(counts) if count > 0]
        if rows:
            proposals = self.draft.propose([requests[row] for row in rows], [counts[row] for row in rows])
            for row, proposal in zip(rows, proposals, strict=True):
                found[row] = proposal
        return found

    def _verify(self, requests: Sequence[Request], proposals: Sequence[Proposal]) -> list[Event]:
        """Read the proposals, and append what is accepted of them and one token more."""
        parts = [[r.window[-1], *p.tokens] for r, p in zip(requests, proposals, strict=True)]
        hidden = self.runner.hidden(self.cache, 0, parts, [request.adapter for request in requests])
        events, end = list[Event](), len(requests)
        most = max(self.rows, LOGITS // self.runner.vocab_size)
        # Backwards: a request that ends gives its row away to one that is done with already.
        while end:
            first = end - 1
            while first and sum(map(len, parts[first - 1 : end])) <= most:
                first -= 1
            events += self._verify_rows(requests, proposals, hidden, first, end)
            end = first
        return events

    def _verify_rows(
        self, requests: Sequence[Request], proposals: Sequence[Proposal], hidden: Tensor, first: int, end: int
    ) -> list[Event]:
        """The same of the rows from `first` up to `end`, by the states [B, T, C] of all."""
        sizes = [len(proposal.tokens) + 1 for proposal in proposals[first:end]]
        read = torch.cat([hidden[first + n, :size] for n, size in enumerate(sizes)])
        logits = self.runner.logits(read)
        kinds = [
            request.sampling for request, n in zip(requests[first:end], sizes, strict=True) for _ in range(n)
        ]
        fine, shares = sound(logits), choices(logits, kinds).dense(self.runner.vocab_size)
        events, after = list[Event](), len(logits)
        for row in reversed(range(first, end)):
            request, proposal = requests[row], proposals[row]
            here = slice(after - sizes[row - first], after)
            after, its = here.start, logits[here]
            request.read += 1
            if not all(fine[here]):
                events.append(self._fail(request))
                continue
            if not proposal.tokens:
                events += self._take([request], its)
                continue
            tokens = accepted(shares[here], proposal, partial(_number, request, len(request.tokens)))
            request.read += len(tokens) - 1
            self.cache.cut(row, request.read)
            known = _known(its[: len(tokens)], tokens, [request.likeliest] * len(tokens))
            for token, figures in zip(tokens, known, strict=True):
                more = self._append(request, token, *figures)
                events += more
                if more[-1].end:
                    break
        return events

    def _make_room(self) -> list[Event]:
        """End or shorten the texts that have filled the context."""
        events = []
        for request in self.active[: self._decoding]:
            if len(request.window) <= self._room:
                continue
            if not self.slide:
                events.append(self._finish(request, "context"))
                continue
            # Read again with half of the context: positions are relative, keys and values are not.
            row = self.active.index(request)
            kept = request.window[-max(self.runner.context // 2, 1) :]
            request.window, request.read = [*self._before, *kept], 0
            self.cache.lengths[row] = 0
            self._decoding -= 1
            self._swap(row, self._decoding)
        return events

    def _take(self, requests: Sequence[Request], logits: Tensor) -> list[Event]:
        """Choose a token for each request by logits [B, V] and append it; one for which there is none ends alone."""
        changed = logits
        if any(request.penalties or request.allowed for request in requests):
            changed = torch.stack([_changed(r, row) for r, row in zip(requests, logits, strict=True)])
        fine, events = sound(changed), list[Event]()
        if not all(fine):
            events += [self._fail(request) for request, one in zip(requests, fine, strict=True) if not one]
            kept = [number for number, one in enumerate(fine) if one]
            if not kept:
                return events
            requests, logits, changed = [requests[number] for number in kept], logits[kept], changed[kept]
        choice = choices(changed, [request.sampling for request in requests])
        numbers = [uniform(r.sampling.seed, r.number, len(r.tokens)) for r in requests]
        tokens = choice.draw(numbers)
        chosen = tokens.tolist()
        known = _known(logits, chosen, [request.likeliest for request in requests])
        for request, token, figures in zip(requests, chosen, known, strict=True):
            events += self._append(request, token, *figures)
        return events

    def _append(
        self, request: Request, token: int, log_probability: float | None, likeliest: Likeliest
    ) -> list[Event]:
        """Events of a new token of a request, at least one."""
        request.tokens.append(token)
        request.window.append(token)
        if request.penalties:
            request.penalties.add(token)
        if token == self.runner.eos_id or token in request.ends:
            end = self._finish(request, "stop")
            return [end._replace(log_probability=log_probability, likeliest=likeliest)]
        events = [Event(request, token, None, log_probability, likeliest)]
        if len(request.tokens) >= request.sampling.max_tokens:
            events.append(self._finish(request, "length"))
        return events

    def _drop_cancelled(self) -> list[Event]:
        gone = [request for request in self.waiting if request.cancelled]
        for request in gone:
            self.waiting.remove(request)
        ended = [self._finish(request, "cancelled") for request in list(self.active) if request.cancelled]
        return [*ended, *(Event(request, None, "cancelled") for request in gone)]

    def _begin_decoding(self, request: Request) -> None:
        self._swap(self.active.index(request), self._decoding)
        self._decoding += 1

    def _fail(self, request: Request) -> Event:
        if request.failure is None:
            request.failure = WorkError("the model gives numbers that are not finite")
        return self._finish(request, "failed")

    def _finish(self, request: Request, end: End) -> Event:
        """Give a request's row to the last one, so that the rows stay without a gap."""
        if self.draft:
            self.draft.forget(request)
        row = self.active.index(request)
        if row < self._decoding:
            self._decoding -= 1
            self._swap(row, self._decoding)
            row = self._decoding
        last = len(self.active) - 1
        self.cache.move(last, row)
        self.active[row] = self.active[last]
        self.active.pop()
        return Event(request, None, end)

    def _swap(self, a: int, b: int) -> None:
        if a != b:
            self.cache.swap(a, b)
            self.active[a], self.active[b] = self.active[b], self.active[a]


def _changed(request: Request, logits: Tensor) -> Tensor:
    """Logits [V] after the request's penalties and constraints; none but NaN if those fail, which the request then notes."""
    try:
        if request.penalties:
            logits = request.penalties.apply(logits)
        if request.allowed and (allowed := request.allowed(request.tokens)) is not None:
            logits = logits.masked_fill(~allowed.to(logits.device), float("-inf"))
        return logits
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of a library in Rust is no `Exception`
        request.fail(error)
        return torch.full_like(logits, float("nan"))


def _known(
    logits: Tensor, tokens: Sequence[int], counts: Sequence[int | None]
) -> list[tuple[float | None, Likeliest]]:
    """Of logits [B, V]: the log-probability of each row's token, and so many of the likeliest ones; None: neither."""
    if all(count is None for count in counts):
        return [(None, ())] * len(counts)
    known = logits.log_softmax(-1)
    found = known.gather(1, torch.tensor(tokens, device=known.device)[:, None]).squeeze(1).tolist()
    most = max(count or 0 for count in counts)
    rows: list[Likeliest] = [()] * len(tokens)
    if most:
        values, ids = known.topk(min(most, known.shape[1]))
        rows = [list(zip(*row, strict=True)) for row in zip(ids.tolist(), values.tolist(), strict=True)]
    return [
        (None, ()) if count is None else (value, row[:count])
        for value, row, count in zip(found, rows, counts, strict=True)
    ]


def _number(request: Request, place: int, ahead: int, use: int) -> float:
    return uniform(request.sampling.seed, request.number, place + ahead, use)
