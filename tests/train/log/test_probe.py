"""The look inside: a prefix shows what the whole row would, nothing is changed by it, and entropies are right."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from corpusmill.train.log.probe import POSITIONS, ROWS, look_inside
from corpusmill.train.model.attend import Boundaries, attend, attention_figures, document_mask
from corpusmill.train.model.losses import activation_rms
from corpusmill.train.parallel.model import ParallelModel
from tests.train.models import KINDS, model_of

CPU = torch.device("cpu")


def batch_of(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Rows of documents of unequal length; a few positions are not scored."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(1, 90, (rows, length), generator=generator)
    documents = (torch.rand(rows, length, generator=generator) < 0.05).long().cumsum(1)
    new = torch.ones(rows, length, dtype=torch.bool)
    new[:, 1:] = documents[:, 1:] != documents[:, :-1]
    place = torch.arange(length).expand(rows, length)
    positions = place - torch.where(new, place, 0).cummax(1).values
    labels = tokens.roll(-1, 1)
    labels[:, 5:9] = -100
    return {"tokens": tokens, "documents": documents, "positions": positions, "labels": labels}


def test_equal_keys_give_the_logarithm_of_their_number() -> None:
    q, k = torch.randn(1, 4, 8, 6), torch.zeros(1, 2, 8, 6)
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    found, highest = attention_figures(q, k, document_mask(documents))
    assert torch.equal(highest, torch.zeros(1, 8))
    seen = torch.tensor([[1, 2, 3, 1, 2, 3, 4, 5]])
    torch.testing.assert_close(found, seen.float().log())


def test_a_single_key_that_wins_gives_zero() -> None:
    q = torch.ones(1, 1, 4, 2)
    k = torch.tensor([[[[1e4, 1e4], [0, 0], [0, 0], [0, 0]]]])
    entropy, highest = attention_figures(q, k, document_mask(torch.zeros(1, 4)))
    assert float(entropy.abs().max()) == 0
    torch.testing.assert_close(highest, torch.full((1, 4), 2e4 / math.sqrt(2)))


def test_the_highest_logit_is_one_that_the_position_sees() -> None:
    """Neither a later position nor another document's counts, of any head."""
    q = torch.tensor([[[[1.0, 0], [1, 0], [1, 0], [1, 0]], [[2.0, 0], [2, 0], [2, 0], [2, 0]]]])
    k = torch.tensor([[[[3.0, 0], [9, 0], [-1, 0], [50, 0]]]])
    _, highest = attention_figures(q, k, document_mask(torch.tensor([[0, 0, 1, 1]])))
    seen = torch.tensor([[6.0, 18, -1, 100]])
    torch.testing.assert_close(highest, seen / math.sqrt(2))


def test_attention_is_the_same_with_somebody_watching() -> None:
    q, k, v = torch.randn(2, 4, 9, 6), torch.randn(2, 2, 9, 6), torch.randn(2, 2, 9, 6)
    mask, left = document_mask(torch.zeros(2, 9)), list[tuple[torch.Tensor, torch.Tensor]]()
    watched = attend(q, k, v, Boundaries(mask=mask, seen=left))
    assert torch.equal(watched, attend(q, k, v, Boundaries(mask=mask))) and left[0][0].shape == (2, 9)


def by_hand(model: Any, batch: dict[str, torch.Tensor]) -> list[tuple[float, float, float]]:
    """Of each layer entropy, entropy as a share, and the highest logit, from its own projections, over whole rows, then cut."""
    kept: list[tuple[Any, ...]] = []
    handles = [
        layer.attention.register_forward_pre_hook(lambda module, given: kept.append((module, *given)))
        for layer in model.layers.values()
    ]
    with torch.no_grad():
        model(batch["tokens"][:ROWS], None, batch["documents"][:ROWS], batch["positions"][:ROWS])
    for handle in handles:
        handle.remove()
    found = []
    for module, x, rope, within, *_ in kept:
        q, k = (w(x).unflatten(-1, (-1, module.head_dim)).transpose(1, 2) for w in (module.q, module.k))
        mask = within.of(module.local).mask
        if module.q_norm is not None:
            q, k = module.q_norm(q), module.k_norm(k)
        if rope is not None and module.rotated:
            from corpusmill.train.model.rope import rotate

            q, k = rotate(q, rope), rotate(k, rope)
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(module.head_dim)
        logs = F.log_softmax(scores.masked_fill(~mask, -1e30), -1)
        entropy = -(logs.exp() * logs).sum(-1).mean(1)[:, :POSITIONS]
        scored = batch["labels"][:ROWS, :POSITIONS] >= 0
        seen = mask.sum(-1)[:, 0, :POSITIONS].float().log()
        highest = scores.masked_fill(~mask, -1e30).amax((1, 3))[:, :POSITIONS]
        figures = entropy[scored].mean(), entropy[scored].sum() / seen[scored].sum(), highest[scored].max()
        found.append(tuple(float(figure.detach()) for figure in figures))
    return found


@pytest.mark.parametrize("kind", ["llama", "qwen3", "glm4", "gpt2", "qwen3 local", "smollm3"])
def test_it_is_what_whole_rows_give(kind: str) -> None:
    model = model_of(KINDS[kind][1] | ({"max_positions": 200} if kind == "gpt2" else {}), spread=0.3)
    batch = batch_of(4, 200)
    found = look_inside(ParallelModel([model]), batch, CPU)
    assert found.attention_entropy.shape == (3,)
    expected = list(zip(*by_hand(model, batch), strict=True))
    assert found.attention_entropy.tolist() == pytest.approx(expected[0], rel=1e-4)
    assert found.attention_entropy_share.tolist() == pytest.approx(expected[1], rel=1e-4)
    assert found.attention_logit_max.tolist() == pytest.approx(expected[2], rel=1e-4)
    streams: list[float] = []
    handles = [
        layer.register_forward_hook(
            lambda _, __, out: streams.append(float(out[0][:ROWS, :POSITIONS].abs().amax(-1).mean()))
        )
        for layer in model.layers.values()
    ]
    with torch.no_grad():
        logits = model(batch["tokens"], None, batch["documents"], batch["positions"])
    for handle in handles:
        handle.remove()
    assert found.activation_peak.tolist() == pytest.approx(streams, rel=1e-4)
    scored = batch["labels"][:ROWS, :POSITIONS] >= 0
    assert float(found.logit_max) == pytest.approx(
        float(logits[:ROWS, :POSITIONS, :90][scored].max()), rel=1e-4
    )


def test_nothing_is_left_behind() -> None:
    model = model_of({**KINDS["glm4"][1], "dropout": 0.5}).train()
    model(torch.ones(1, 8, dtype=torch.long), torch.ones(1, 8, dtype=torch.long))
    sums = {name: value.clone() for name, value in model.statistics.sums.items()}
    state, generator = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    first, second = (look_inside(ParallelModel([model]), batch_of(2, 40), CPU) for _ in range(2))
    assert torch.equal(first.attention_entropy, second.attention_entropy)  # no dropout
    assert model.training and model.probe is None and torch.equal(generator, torch.get_rng_state())
    assert sums.keys() == model.statistics.sums.keys() and all(
        torch.equal(sums[k], model.statistics.sums[k]) for k in sums
    )
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in state.items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(layer._forward_hooks for layer in model.layers.values())


def test_a_piece_without_a_scored_position_says_so() -> None:
    batch = batch_of(2, 16)
    batch["labels"][:] = -100
    row = look_inside(ParallelModel([model_of({})]), batch, CPU).row()
    assert row["logit_max"] == float("-inf") and set(row["attention_entropy"].values()) == {0.0}
    assert row["attention_entropy_share"] == {"layer_0": 1.0, "layer_1": 1.0, "layer_2": 1.0}


def test_the_activation_s_size_is_that_of_all_micro_batches() -> None:
    model, batch = model_of({}).train(), batch_of(6, 20)
    inputs: list[torch.Tensor] = []
    handle = model.norm.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))
    model.statistics.collect_activations = True
    for start in range(0, 6, 2):
        model(*(batch[name][start : start + 2] for name in ("tokens", "labels", "documents", "positions")))
    handle.remove()
    sums = {
        name: value * 3 for name, value in model.statistics.take().items()
    }  # three processes with the same rows
    found = activation_rms(sums)
    assert found is not None and sums == {} and model.statistics.sums == {}
    assert float(found) == pytest.approx(float(torch.cat(inputs).square().mean().sqrt()), rel=1e-6)
    assert activation_rms({}) is None


def test_compiled_layers_give_the_same_and_are_not_compiled_again() -> None:
    from torch._dynamo.testing import CompileCounter

    from corpusmill.train.precision.adapt import compile_layers

    model, batch = model_of({}), batch_of(2, 24)
    plain = look_inside(ParallelModel([model]), batch, CPU)
    counter = CompileCounter()
    compile_layers(model, backend=counter)
    model(**batch).sum().backward()
    compiled = counter.frame_count
    seen = look_inside(ParallelModel([model]), batch, CPU)
    model(**batch).sum().backward()
    assert counter.frame_count == compiled > 0
    for before, after in zip(plain, seen, strict=True):
        assert torch.equal(before, after)
