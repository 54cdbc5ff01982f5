"""Texts of one prompt: it is read once, and each text is that of a request alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
import torch

from corpusmill.schemas.generation import Sampling
from corpusmill.train.generate.cache import Cache
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.request import Event, Request, Scored
from corpusmill.train.generate.speculate import Draft, PromptLookup
from tests.train.generate.models import EOS, VOCAB, runner, uncached
from tests.train.generate.test_engine import GREEDY, texts


@pytest.mark.parametrize("slide", [True, False], ids=["slides", "ends"])
@pytest.mark.parametrize("draft", [None, PromptLookup()], ids=["alone", "draft"])
@pytest.mark.parametrize("rows", [1, 2, 3, 9])
@pytest.mark.parametrize("length", [1, 2, 20, 40])
def test_texts_of_one_prompt_are_those_of_single_requests(
    rows: int, length: int, slide: bool, draft: Draft | None
) -> None:
    """Six of a prompt that is read in chunks, between others: with penalties, and log-probabilities of prompt and text. They end
    at different lengths, some beyond the context, so that they get rows at different times. Three more of the prompt ask for
    other figures."""
    shared = [EOS, *(n * n % (VOCAB - 1) + 1 for n in range(1, length))]
    settings = [
        Sampling(max_tokens=most, temperature=0.9, seed=4, repetition_penalty=1.3, frequency_penalty=0.5)
        for most in (1, 30, 4, 25, 9, 3)
    ]
    free = Sampling(max_tokens=12, temperature=0)

    def made(prompt: list[int]) -> list[Request]:
        own = [Request(prompt, s, n, likeliest=2, scored=[]) for n, s in enumerate(settings)]
        other = [
            Request(prompt, free, likeliest=2),
            Request(prompt, free),
            Request(prompt, free, likeliest=0, scored=[]),
        ]
        return [Request([EOS, 9], free), other[0], *own, Request([EOS, 4, 5], free), *other[1:]]

    together, events = made(shared), list[Event]()
    engine = Engine(runner(), rows=rows, chunk=7, slide=slide, draft=draft)
    for request in together:
        engine.submit(request)
    events += engine.run()
    for number, request in enumerate(made(shared)):
        request.prompt = list(shared) if request.prompt is shared else request.prompt
        alone = Engine(runner(), rows=1, chunk=7, slide=slide, draft=draft)
        alone.submit(request)
        wanted = list(alone.run())
        found = [event for event in events if event.request is together[number]]
        assert [(e.token, e.end) for e in found] == [(e.token, e.end) for e in wanted]
        assert figures(found) == pytest.approx(figures(wanted), abs=1e-4)
        if request.scored is not None:
            scored = together[number].scored
            assert scored is not None and [one.token for one in scored] == request.prompt
            assert figures(scored) == pytest.approx(figures(request.scored), abs=1e-4)
    assert not engine.active and not engine.waiting


def figures(of: Iterable[Event | Scored]) -> list[float]:
    """Log-probabilities of tokens and of the likeliest ones beside them."""
    rows = [[one.log_probability or 0.0, *(value for _, value in one.likeliest)] for one in of]
    return [value for row in rows for value in row]


def test_requests_behind_a_shared_prompt_take_the_rows_that_are_free() -> None:
    """While one of three texts reads the prompt of all, a request behind them gets a row, and its text, before the other two."""
    prompt = [EOS, *range(1, 40)]
    shared = [Request(prompt, GREEDY, n) for n in range(3)]
    other = Request([EOS, 9], Sampling(max_tokens=2, temperature=0))
    engine = Engine(runner(), rows=3, chunk=4)
    for request in (*shared, other):
        engine.submit(request)
    engine.step()
    assert engine.active == [shared[0], other] and list(engine.waiting) == shared[1:]
    ends = [event.request for event in engine.run() if event.end]
    assert ends[0] is other
    assert shared[0].tokens == shared[1].tokens == shared[2].tokens
    assert shared[0].tokens == texts(Engine(runner(), rows=1), [Request(list(prompt), GREEDY)])[0]


@pytest.mark.parametrize(
    ("rows", "reads"), [(8, 30), (2, 32)], ids=["a row for each", "rows that become free while another decodes"]
)  # fmt: skip
def test_a_prompt_of_several_texts_is_read_once(rows: int, reads: int) -> None:
    prompt, lengths = [EOS, *range(1, 30)], (3, 16, 3, 3)
    engine, read = Engine(runner(), rows=rows, chunk=7), list[int]()
    hidden = engine.runner.hidden

    def counting(
        cache: Cache, first: int, tokens: Sequence[Sequence[int]], adapters: Sequence[int] = ()
    ) -> torch.Tensor:
        read.extend(map(len, tokens))
        return hidden(cache, first, tokens, adapters)

    engine.runner.hidden = counting  # type: ignore[method-assign]
    made = [
        Request(prompt, Sampling(max_tokens=most, logit_bias={EOS: -100.0}, seed=1), n)
        for n, most in enumerate(lengths)
    ]
    assert list(map(len, texts(engine, made))) == list(lengths)
    assert sum(read) == reads + sum(most - 1 for most in lengths)  # the last token of a text is never read


def test_a_prompt_that_is_cancelled_while_it_is_read_is_read_by_the_next() -> None:
    prompt = [EOS, *range(1, 30)]
    engine = Engine(runner(), rows=4, chunk=7)
    made = [Request(prompt, GREEDY, number) for number in range(3)]
    for request in made:
        engine.submit(request)
    engine.step()
    assert engine.active == made[:1]
    made[0].cancelled = True
    list(engine.run())
    assert made[1].tokens == made[2].tokens == uncached(engine.runner.model, prompt, 30)


@pytest.mark.parametrize(
    "prompt", [[EOS, *range(1, 40)], [7] * 20], ids=["other tokens", "one token again and again"]
)
def test_a_prompt_is_not_copied_from_a_text_that_has_lost_it(prompt: list[int]) -> None:
    """One text outgrows the context, is read again in chunks, and may begin like its prompt then; short ones come all the time."""
    long = Sampling(max_tokens=120, temperature=0, logit_bias={7: 100.0})
    short = Sampling(max_tokens=2, temperature=0, logit_bias={EOS: -100.0})
    made = [Request(prompt, long, likeliest=2), *(Request(prompt, short, n, likeliest=2) for n in range(90))]
    engine = Engine(runner(), rows=2, chunk=3)
    for request in made:
        engine.submit(request)
    events = list(engine.run())
    first = Request(list(prompt), short, likeliest=2)
    alone = Engine(runner(), rows=1)
    alone.submit(first)
    wanted = figures(alone.run())
    assert made[0].tokens == [7] * 120
    for request in made[1:]:
        assert request.tokens == first.tokens
        found = figures(event for event in events if event.request is request)
        assert found == pytest.approx(wanted, abs=1e-4)
