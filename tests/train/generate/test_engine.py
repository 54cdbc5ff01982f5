"""Many texts at once are those that each would be alone, and those that no cache gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.schemas.generation import Sampling
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.request import Event, Request
from corpusmill.train.generate.runner import Runner
from corpusmill.train.generate.speculate import Draft, PromptLookup
from corpusmill.train.model.mla import absorbs
from tests.train.generate.models import EOS, VOCAB, model, prompts, runner, uncached

LATENT = {"kv_rank": 8, "nope_head_dim": 16, "rope_head_dim": 4, "value_head_dim": 16}
GREEDY = Sampling(max_tokens=30, temperature=0)


def texts(engine: Engine, requests: list[Request]) -> list[list[int]]:
    for request in requests:
        engine.submit(request)
    list(engine.run())
    return [request.tokens for request in requests]


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({}, 200),
        ({"qk_norm": True, "kv_heads": 2, "tie_embeddings": False}, 200),
        ({"preset": "gpt2", "max_positions": 64}, 40),
        ({"value_embeddings": "all"}, 40),
        ({"value_residual": True, "kv_heads": 2}, 40),
        ({"mla": LATENT}, 40),
        (
            {
                "mla": {**LATENT, "q_rank": 12, "value_head_dim": 4},
                "window": 7,
                "attention_sinks": True,
                "attention_softcap": 2.0,
            },
            40,
        ),
        ({"mtp": 2, "kv_heads": 2}, 40),
        ({"mup_base_width": 24}, 40),
        ({"mup_base_width": 16, "mup_base_head_dim": 4}, 40),
        ({"moe": {"experts": 4, "ffn_dim": 32}}, 40),
        ({"window": 7, "global_every": 2, "nope_every": 2}, 40),
        (
            {
                "window": 5,
                "attention_softcap": 2.0,
                "attention_sinks": True,
                "kv_heads": 2,
                "logit_softcap": 5.0,
            },
            40,
        ),
    ],
    ids=[
        "llama",
        "qk_norm",
        "gpt2",
        "value_embeddings",
        "value residual",
        "latent",
        "latent, local",
        "further tokens",
        "mup",
        "mup, larger heads",
        "experts",
        "local",
        "sinks",
    ],
)
def test_the_cache_changes_no_text(config: dict[str, Any], count: int) -> None:
    """Prompts of 0 to 39 tokens, 30 new ones, in 4 rows of 48 positions: they wait, are read in chunks, outgrow the context."""
    made = model(**config)
    wanted = [uncached(made, prompt, 30) for prompt in prompts(count)]
    engine = Engine(Runner(made, VOCAB, EOS, 48), rows=4, chunk=16)
    assert texts(engine, [Request(prompt, GREEDY) for prompt in prompts(count)]) == wanted
    assert len({tuple(text) for text in wanted}) > 0.75 * count
    assert not engine.active and not engine.waiting


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("q_rank", [None, 12])
def test_what_is_kept_of_a_latent_model_are_its_latent_vectors(q_rank: int | None, precision: str) -> None:
    """Read at once or one by one, by expanded keys or absorbed ones, a text has the logits of a pass without a cache."""
    made = model(mla={**LATENT, "kv_rank": 24, "q_rank": q_rank, "value_head_dim": 12}, scale=2.0)
    ids = torch.randint(1, VOCAB, (24,), generator=torch.Generator().manual_seed(1)).tolist()
    wanted = made(torch.tensor([ids]))[0, :, :VOCAB].detach()
    used = Runner(made, VOCAB, EOS, 48, precision)
    of_cache, close = (
        used.cache(1),
        {"atol": 1e-4, "rtol": 1e-4} if precision == "fp32" else {"atol": 0.3, "rtol": 0.1},
    )
    assert of_cache.memory.shape == (2, 1, 1, 1, 48, 24 + 4)
    layer = made.layers["0"].attention
    assert not absorbs(layer, 10, 10) and absorbs(layer, 1, 12) and absorbs(layer, 2, 13)
    for first, last in ((0, 10), (10, 11), (11, 13), (13, 24)):  # of which the first alone expands them
        found = used.forward(of_cache, 0, [ids[first:last]])
        torch.testing.assert_close(found[0], wanted[last - 1], **close)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpusmill.train.model.mla.absorbs", lambda *_: False)
        other = used.cache(1)
        for first, last in ((0, 10), (10, 11), (11, 24)):
            found = used.forward(other, 0, [ids[first:last]])
            torch.testing.assert_close(found[0], wanted[last - 1], **close)
    torch.testing.assert_close(other.memory, of_cache.memory, **close)


def test_a_text_does_not_depend_on_what_else_is_generated() -> None:
    sampling = [Sampling(max_tokens=5 + n, temperature=0.7 + 0.1 * n, top_k=20, seed=n) for n in range(9)]
    made = [Request(prompt, s, n) for n, (prompt, s) in enumerate(zip(prompts(9), sampling, strict=True))]
    together = texts(Engine(runner(), rows=3, chunk=8), made)
    alone = []
    for number, (prompt, s) in enumerate(zip(prompts(9), sampling, strict=True)):
        alone += texts(Engine(runner(), rows=1), [Request(prompt, s, number)])
    assert together == alone
    other = Request(prompts(9)[4], sampling[4].model_copy(update={"seed": 99}), 4)
    assert texts(Engine(runner(), rows=1), [other]) != [alone[4]]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 11), max_size=6), st.integers(1, 5), st.integers(1, 20))
def test_requests_come_and_go_at_any_time(cancelled: list[int], rows: int, chunk: int) -> None:
    engine = Engine(runner(), rows=rows, chunk=chunk)
    requests = [Request(prompt, Sampling(max_tokens=12, temperature=0)) for prompt in prompts(12)]
    events: list[Event] = []
    for number, request in enumerate(requests):
        engine.submit(request)
        events += engine.step()
        if number in cancelled:
            requests[number // 2].cancelled = True
    events += list(engine.run())
    ends = {id(e.request): e.end for e in events if e.end}
    assert len(ends) == 12 and sum(e.end is not None for e in events) == 12  # one each
    for request in requests:
        whole = uncached(engine.runner.model, request.prompt, 12)
        assert request.tokens == whole[: len(request.tokens)]
        if not request.cancelled:
            assert request.tokens == whole
            assert ends[id(request)] == ("stop" if whole[-1] == EOS else "length")


def test_a_full_context_ends_a_text_that_must_not_slide() -> None:
    engine = Engine(runner(context=16), slide=False)
    (request,) = [Request([EOS, *range(1, 10)], Sampling(max_tokens=100, temperature=0))]
    engine.submit(request)
    assert list(engine.run())[-1].end == "context"
    assert len(request.prompt) + len(request.tokens) == 17  # the last token was chosen and never read
    with pytest.raises(ValueError, match="16 tokens, and the model's context 16: shorten it"):
        engine.submit(Request([EOS] * 16, GREEDY))
    with pytest.raises(ValueError, match="no token"):
        engine.submit(Request([], GREEDY))


def test_constraints_and_penalties_hold() -> None:
    allowed = torch.zeros(VOCAB, dtype=torch.bool)
    allowed[5:25] = True

    def once(tokens: list[int]) -> torch.Tensor:
        return allowed.clone().index_fill_(0, torch.tensor(tokens, dtype=torch.int64), False)

    requests = [
        Request([EOS, 7], Sampling(max_tokens=20, temperature=1.0), allowed=once),
        Request(
            [EOS, 7], Sampling(max_tokens=20, temperature=0, frequency_penalty=2.0, presence_penalty=2.0)
        ),
        Request([EOS, 7], Sampling(max_tokens=20, temperature=0)),
    ]
    constrained, penalised, free = texts(Engine(runner(scale=1.0)), requests)
    assert sorted(constrained) == list(range(5, 25))
    assert len(set(penalised)) > len(set(free))


def test_log_probabilities_are_the_model_s() -> None:
    request = Request([EOS, 3, 4], Sampling(max_tokens=8, temperature=1.5, top_k=0, top_p=1.0), likeliest=0)
    engine = Engine(runner())
    engine.submit(request)
    found = [event.log_probability for event in engine.run() if event.token is not None]
    row = torch.tensor([[*request.prompt, *request.tokens]])
    with torch.no_grad():
        shares = engine.runner.model(row)[0, :, :VOCAB].log_softmax(-1)
    wanted = shares[2:-1].gather(1, row[0, 3:, None]).squeeze(1)[: len(found)]
    torch.testing.assert_close(torch.tensor(found), wanted, atol=1e-5, rtol=0)


def test_in_bfloat16_it_follows_the_model_under_autocast() -> None:
    """The weights are converted ahead of time, to what autocast would make of them."""
    made, prompt = model(scale=1.0), prompts(1, seed=5)[0]
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        wanted = made(torch.tensor([prompt]))[0, -1, :VOCAB].float()
    fast = Runner(made, VOCAB, EOS, 48, "bf16")
    found = fast.forward(fast.cache(1), 0, [prompt])[0]
    assert fast.cache(1).memory.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted, atol=0.02, rtol=0.02)


def test_tokens_of_the_prompt_are_scored_in_chunks() -> None:
    prompt = prompts(1, longest=60, seed=5)[0]
    made = [Request(prompt, GREEDY, likeliest=2, scored=[]), Request(prompt[:9], GREEDY, scored=[])]
    engine = Engine(runner(), rows=2, chunk=7)
    for request in made:
        engine.submit(request)
    events = list(engine.run())
    with torch.no_grad():
        known = engine.runner.model(torch.tensor([prompt]))[0, :, :VOCAB].log_softmax(-1)
    for request in made:
        assert request.scored is not None
        assert [one.token for one in request.scored] == request.prompt
        assert request.scored[0].log_probability is None
        found = torch.tensor([one.log_probability for one in request.scored[1:]])
        wanted = known[:-1].gather(1, torch.tensor(prompt[1:])[:, None]).squeeze(1)[: len(found)]
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    assert made[0].scored is not None
    best = [one.likeliest[0][0] for one in made[0].scored[1:]]
    assert best == known[:-1].argmax(-1).tolist() and all(
        len(one.likeliest) == 2 for one in made[0].scored[1:]
    )
    for event in events:
        if event.token is not None:  # greedy
            assert len(event.likeliest) == (event.request.likeliest or 0)
            assert (event.log_probability is None) == (event.request.likeliest is None)
            assert not event.likeliest or event.likeliest[0][0] == event.token


def test_other_tokens_may_end_a_text_and_biases_choose_tokens() -> None:
    biased = Sampling(max_tokens=5, temperature=0, logit_bias={7: 100.0})
    ended, free = Request([EOS, 1], biased, ends=frozenset([7])), Request([EOS, 1], biased)
    texts(Engine(runner()), [ended, free])
    assert ended.tokens == [7] and free.tokens == [7] * 5


def test_texts_go_on_while_a_long_prompt_is_read() -> None:
    """With each of its ten chunks they get a token."""
    engine = Engine(runner(), rows=3, chunk=4)
    going = [
        Request([EOS, 1 + n], Sampling(max_tokens=40, temperature=0, logit_bias={EOS: -100.0}))
        for n in range(2)
    ]
    for request in going:
        engine.submit(request)
    engine.step()
    long = Request([EOS, *range(1, 40)], Sampling(max_tokens=2, temperature=0))
    engine.submit(long)
    for count in range(2, 12):
        assert not long.tokens
        engine.step()
        assert [len(request.tokens) for request in going] == [count, count]
    assert long.tokens


@pytest.mark.parametrize("draft", [None, PromptLookup(3, 1)], ids=["alone", "draft"])
def test_a_request_without_a_choice_fails_alone(draft: Draft | None) -> None:
    """At its first token, or later; the others' texts are as they would be."""

    def refuse(tokens: list[int]) -> torch.Tensor:
        return torch.full((VOCAB,), len(tokens) < 4)

    wanted = texts(Engine(runner(), rows=4), [Request(prompt, GREEDY) for prompt in prompts(6)])
    made = [Request(prompt, GREEDY) for prompt in prompts(6)]
    broken = [
        Request([EOS, 1, 2], Sampling(logit_bias={3: float("inf")})), Request([EOS, 3], GREEDY, allowed=refuse),
    ]  # fmt: skip
    engine = Engine(runner(), rows=4, draft=draft)
    for request in [*made[:2], broken[0], *made[2:4], broken[1], *made[4:]]:
        engine.submit(request)
    ends = {event.request: event.end for event in engine.run() if event.end}
    assert [request.tokens for request in made] == wanted
    assert [ends[request] for request in broken] == ["failed"] * 2
    assert [len(request.tokens) for request in broken] == [0, 4]
    assert str(broken[0].failure) == "the model gives numbers that are not finite"
    assert not engine.active and not engine.waiting


def test_what_is_cancelled_goes_at_once_from_rows_and_queue() -> None:
    made = [
        Request([EOS, 1 + n], Sampling(max_tokens=40, temperature=0, logit_bias={EOS: -100.0}))
        for n in range(4)
    ]
    engine = Engine(runner(), rows=1)
    for request in made:
        engine.submit(request)
    engine.step()
    made[0].cancelled = made[2].cancelled = True
    ends = [event for event in engine.step() if event.end]
    assert [(event.request, event.end) for event in ends] == [(made[0], "cancelled"), (made[2], "cancelled")]
    assert engine.active == [made[1]] and list(engine.waiting) == [made[3]]
    list(engine.run())
    assert len(made[1].tokens) == len(made[3].tokens) == 40
