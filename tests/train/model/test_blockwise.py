"""Attention in blocks of queries: equal to attention written out, forward and backward, whatever the blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from corpusmill.train.model import blockwise as module
from corpusmill.train.model.attend import PLAIN, attend, block_mask, visible_mask
from corpusmill.train.model.attend import Boundaries as Within
from corpusmill.train.model.blockwise import Scores, blockwise

B, H, T, D = 2, 4, 9, 8


def written_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scores: Scores) -> Tensor:
    """The weights of all positions at once, a head's sink as one more column."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    found = q @ k.transpose(-1, -2) * D**-0.5
    if scores.softcap is not None:
        found = scores.softcap * (found / scores.softcap).tanh()
    found = found.masked_fill(~mask, -torch.inf)
    if scores.sinks is not None:
        found = torch.cat((found, scores.sinks[:, None, None].expand(*found.shape[:3], 1)), -1)
    return found.softmax(-1)[..., : k.shape[2]] @ v


def heads(kv: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((B, H, T, D), (B, kv, T, D), (B, kv, T, D))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("weights", [1, 3 * B * H * T, 1 << 22])
@pytest.mark.parametrize("kv", [1, 2, 4])
@pytest.mark.parametrize(("softcap", "with_sinks"), [(None, False), (2.0, False), (None, True), (0.7, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_attention_with_gradients(
    monkeypatch: pytest.MonkeyPatch, weights: int, kv: int, softcap: float | None, with_sinks: bool, dtype: torch.dtype
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "WEIGHTS", weights)
    given = heads(kv, dtype)
    sinks = torch.linspace(-1, 1, H).requires_grad_() if with_sinks else None
    documents = (torch.arange(T) > 3).long().expand(B, T)
    mask = visible_mask(documents, documents, window=4)
    found = blockwise(*given, mask, Scores(softcap, sinks))
    exact = [x.detach().double().requires_grad_() for x in given]
    exact_sinks = None if sinks is None else sinks.detach().double().requires_grad_()
    wanted = written_out(*exact, mask, Scores(softcap, exact_sinks))
    near = {"atol": 2e-6, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.03, "rtol": 0.03}
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, **near)
    slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    inputs, outputs = (
        [*given, *([sinks] if sinks is not None else [])],
        [*exact, *([exact_sinks] if exact_sinks is not None else [])],
    )
    got = torch.autograd.grad(found, inputs, slope.to(dtype))
    for a, b in zip(got, torch.autograd.grad(wanted, outputs, slope), strict=True):
        torch.testing.assert_close(a.double(), b, **near)


def test_fewer_queries_than_keys_are_the_last_ones() -> None:
    q, k, v = heads(2)
    whole = blockwise(q, k, v, None, Scores(1.5))
    torch.testing.assert_close(blockwise(q[:, :, -2:], k, v, None, Scores(1.5)), whole[:, :, -2:])


def test_a_high_sink_leaves_nothing_and_a_low_one_everything() -> None:
    q, k, v = heads(4)
    plain = attend(q, k, v, Within())
    assert blockwise(q, k, v, None, Scores(sinks=torch.full((H,), 80.0))).abs().max() < 1e-30
    torch.testing.assert_close(blockwise(q, k, v, None, Scores(sinks=torch.full((H,), -80.0))), plain)


@pytest.mark.parametrize(
    "scores", [PLAIN, Scores(1.5), Scores(None, torch.linspace(-1, 1, H)), Scores(0.7, torch.ones(H))]
)
@pytest.mark.parametrize("window", [None, 1, 4])
def test_flex_attention_is_the_same(scores: Scores, window: int | None) -> None:
    """What a GPU computes, here as PyTorch's own Python. Its heads have at least 16 dimensions there."""
    q, k, v = (x.detach() for x in heads(2))
    documents = (torch.arange(T) > 3).long().expand(B, T)
    for known in (documents, None):
        blocks = block_mask(documents, known, window)
        mask = visible_mask(documents, known, window)
        found = module_flex(q, k, v, blocks, scores)
        torch.testing.assert_close(found, written_out(q, k, v, mask, scores), atol=1e-5, rtol=1e-4)


def module_flex(q: Tensor, k: Tensor, v: Tensor, blocks: object, scores: Scores) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    from corpusmill.train.model import attend as attention

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_flex", lambda: flex_attention)  # not compiled
        return attend(q, k, v, Within(blocks=blocks), scores)
