"""Whatever the draft proposes, the text has the model's distribution; at temperature 0 it is the same text."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from corpusmill.schemas.generation import Sampling
from corpusmill.train.generate import engine as engine_module
from corpusmill.train.generate.cache import Cache
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.runner import Runner
from corpusmill.train.generate.sample import choices, uniform
from corpusmill.train.generate.speculate import Draft, PromptLookup, Proposal, SmallModel, accepted
from tests.train.generate.models import EOS, VOCAB, model, prompts, uncached


def like(made: torch.nn.Module, noise: float) -> Runner:
    """A draft that agrees with the model most of the time."""
    other = model(scale=2.0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter, its in zip(other.parameters(), made.parameters(), strict=True):
            parameter.copy_(its + noise * torch.randn(its.shape, generator=generator))
    return Runner(other, VOCAB, EOS, 48)


@pytest.mark.parametrize("kind", ["lookup", "small model"])
def test_greedy_texts_are_the_same_in_fewer_steps(kind: str) -> None:
    made = model(scale=2.0)
    draft: Draft = PromptLookup(3, 1) if kind == "lookup" else SmallModel(like(made, 0.01))
    found, steps = [], []
    for used in (None, draft):
        engine = Engine(Runner(made, VOCAB, EOS, 48), rows=4, chunk=16, draft=used)
        requests = [
            Request(p, Sampling(max_tokens=30, temperature=0, repetition_penalty=1.2 if n == 3 else 1.0))
            for n, p in enumerate(prompts(11))
        ]
        for request in requests:
            engine.submit(request)
        steps.append(0)
        while engine.busy:
            engine.step()
            steps[-1] += 1
        found.append([request.tokens for request in requests])
    assert found[0] == found[1] and steps[1] < 0.8 * steps[0]


@pytest.mark.parametrize("certain", [True, False], ids=["one token", "a distribution"])
def test_accepted_tokens_have_the_model_s_distribution(certain: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    p = torch.randn(3, 12, generator=generator).softmax(-1)
    q = (p[:2].log() + torch.randn(2, 12, generator=generator)).softmax(-1)
    seen = np.zeros(12)
    second = np.zeros(12)
    for n in range(40_000):
        number = partial(uniform, 3, n)
        drafted = [
            int(torch.searchsorted(q[i].double().cumsum(0), number(i, 7) * 0.999999)) for i in range(2)
        ]
        proposal = Proposal([4, 9]) if certain else Proposal(drafted, q)
        tokens = accepted(p, proposal, lambda place, use, number=number: number(place, use))
        assert 1 <= len(tokens) <= 3
        seen[tokens[0]] += 1
        if len(tokens) > 1:
            second[tokens[1]] += 1
    assert stats.chisquare(seen, p[0].double().numpy() / float(p[0].double().sum()) * 40_000).pvalue > 0.001
    # Given that the first was kept, the second is of its own distribution.
    wanted = p[1].double().numpy() / float(p[1].double().sum())
    assert stats.chisquare(second, wanted * second.sum()).pvalue > 0.001


def test_sampled_texts_have_the_model_s_distribution() -> None:
    """The second token of 4,000 texts, with a draft and by the sum over all first tokens."""
    made = model(scale=1.0)
    sampling = Sampling(max_tokens=2, temperature=1.0, top_k=6, top_p=1.0)
    engine = Engine(Runner(made, VOCAB, EOS, 48), rows=64, draft=SmallModel(like(made, 0.05)))
    requests = [Request([EOS, 5, 6], sampling, n) for n in range(4000)]
    for request in requests:
        engine.submit(request)
    list(engine.run())
    first = choices(engine.runner.forward(engine.runner.cache(1), 0, [[EOS, 5, 6]]), [sampling]).dense(VOCAB)[
        0
    ]
    wanted = np.zeros(VOCAB)
    for token in first.nonzero().flatten().tolist():
        if token != EOS:
            logits = engine.runner.forward(engine.runner.cache(1), 0, [[EOS, 5, 6, token]])
            wanted += float(first[token]) * choices(logits, [sampling]).dense(VOCAB)[0].double().numpy()
    seen = np.bincount([r.tokens[1] for r in requests if len(r.tokens) > 1], minlength=VOCAB)
    likely = wanted * seen.sum() >= 5
    assert (seen[wanted == 0] == 0).all()
    expected = np.append(wanted[likely], wanted[~likely].sum())
    counted = np.append(seen[likely], seen[~likely].sum())
    if expected[-1] == 0:
        expected, counted = expected[:-1], counted[:-1]
    assert stats.chisquare(counted, expected / expected.sum() * seen.sum()).pvalue > 0.001


def test_a_small_model_has_a_cache_for_each_row_and_no_more() -> None:
    made = model(scale=2.0)
    draft = SmallModel(like(made, 0.01))
    allocated, cache = list[int](), draft.runner.cache

    def counting(rows: int, spare: int = 0) -> Cache:
        allocated.append(rows)
        return cache(rows, spare)

    draft.runner.cache = counting  # type: ignore[method-assign]
    for _ in range(2):  # a draft outlives an engine
        engine = Engine(Runner(made, VOCAB, EOS, 48), rows=3, chunk=16, draft=draft)
        assert sum(allocated) == 3  # at the start
        requests = [Request(prompt, Sampling(max_tokens=30, temperature=0)) for prompt in prompts(8)]
        for request in requests:
            engine.submit(request)
        engine.step()
        requests[1].cancelled = True
        list(engine.run())
        assert sum(allocated) == 3 and not draft._held
        wanted = [uncached(made, prompt, 30) for prompt in prompts(8)]
        assert [r.tokens for n, r in enumerate(requests) if n != 1] == [
            w for n, w in enumerate(wanted) if n != 1
        ]


@pytest.mark.parametrize("logits", [engine_module.LOGITS, 1], ids=["together", "few at a time"])
def test_a_draft_that_is_the_model_is_always_right(logits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever rows texts of several lengths take, give back and are moved to; also after an engine that was left."""
    made, sizes, positions = model(scale=4.0), list[tuple[int, int]](), list[int]()

    def noted(shares: Tensor, proposal: Proposal, number: Callable[[int, int], float]) -> list[int]:
        found = accepted(shares, proposal, number)
        sizes.append((len(found), len(proposal.tokens) + 1))
        return found

    monkeypatch.setattr(engine_module, "accepted", noted)
    monkeypatch.setattr(engine_module, "LOGITS", logits)
    draft, target = SmallModel(Runner(made, VOCAB, EOS, 48)), Runner(made, VOCAB, EOS, 48)
    judged = target.logits
    monkeypatch.setattr(target, "logits", lambda hidden: positions.append(len(hidden)) or judged(hidden))

    def started(steps: int) -> None:
        engine = Engine(target, rows=4, chunk=16, draft=draft)
        for n, prompt in enumerate(prompts(15, 16)):
            penalty = 1.2 if n % 4 == 3 else 1.0
            engine.submit(
                Request(prompt, Sampling(max_tokens=20 + 2 * n, temperature=0, repetition_penalty=penalty))
            )
        while engine.busy and steps:
            engine.step()
            steps -= 1

    started(9)
    assert draft._held
    gc.collect()
    started(1000)
    assert not draft._held and len(draft._cache.lengths) == 4
    assert len(sizes) > 40 and all(found == most for found, most in sizes)
    assert max(positions) <= 5 if logits == 1 else max(positions) > 10


def test_what_is_proposed_does_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything read twice, or beyond the context, which one of the texts leaves one place in."""
    made = model(scale=4.0)
    requests = [Request(prompt, Sampling(temperature=0)) for prompt in prompts(5)]
    for request in requests:
        request.window = request.prompt
    requests[1].window = [EOS, *[5, 6] * 23]
    alone, runner = Runner(made, VOCAB, EOS, 48), Runner(made, VOCAB, EOS, 48)
    hidden, read = runner.hidden, list[int]()

    def counted(cache: Cache, first: int, tokens: Sequence[Sequence[int]]) -> Tensor:
        read.extend(map(len, tokens))
        return hidden(cache, first, tokens)

    monkeypatch.setattr(runner, "hidden", lambda cache, first, tokens, _=(): counted(cache, first, tokens))
    draft = SmallModel(runner)
    for number, order in enumerate(([0, 1, 2, 3, 4], [3, 0, 4, 1, 2], [2, 4], [1, 2, 0, 4, 3])):
        read.clear()
        counts = [5 - n for n in order]
        found = draft.propose([requests[n] for n in order], counts)
        assert number == 0 or max(read) == 1
        for n, count, proposal in zip(order, counts, found, strict=True):
            (wanted,) = SmallModel(alone).propose([requests[n]], [count])
            assert proposal.tokens == wanted.tokens and len(proposal.tokens) == (1 if n == 1 else count)
            assert proposal.shares is not None and wanted.shares is not None
            torch.testing.assert_close(proposal.shares, wanted.shares)


def test_lookup_takes_the_latest_place_of_the_longest_end() -> None:
    request = Request([1], Sampling())
    request.window = [1, 2, 3, 9, 1, 2, 3, 8, 7, 2, 3]
    assert PromptLookup(4, 2).propose([request], [3]) == [Proposal([8, 7, 2])]
    request.window = [1, 2, 3, 4]
    assert PromptLookup(4, 2).propose([request], [3]) == [Proposal([])]


@given(
    st.lists(st.one_of(st.integers(0, 3), st.sampled_from([256, 65536, 2**31 - 1])), min_size=1, max_size=30),
    st.integers(1, 4),
)
def test_lookup_is_its_definition(window: list[int], count: int) -> None:
    request = Request([1], Sampling())
    request.window = window
    places = [
        (size, start)
        for size in range(2, 5)
        for start in range(len(window) - size)
        if window[start : start + size] == window[-size:]
    ]
    size, start = max(places, default=(0, len(window)))
    (found,) = PromptLookup(4, 2).propose([request], [count])
    assert found == Proposal(window[start + size : start + size + count])
