"""The layers in fewer operations compute what the layers compute, whatever a row's length and the number of new tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from corpusmill.train.generate import product
from corpusmill.train.generate.fused import Fused
from corpusmill.train.generate.runner import Runner
from tests.train.generate.models import EOS, VOCAB, model, prompts


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kv_heads": 2, "qk_norm": True},
        {"kv_heads": 1, "activation": "relu2", "tie_embeddings": False},
        {"activation": "gelu", "rope_scaling": {"kind": "yarn", "factor": 4, "original_length": 16}},
    ],
    ids=["plain", "gqa and qk_norm", "one head of keys", "yarn"],
)
@pytest.mark.parametrize("least", [10**9, 1], ids=["plain weights", "laid-out weights"])
def test_logits_are_the_model_s(
    settings: dict[str, Any], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "LEAST", least)
    made, texts = model(scale=1.5, **settings), prompts(5, longest=20, seed=2)
    texts = [(text * 12)[:60] for text in texts]
    with torch.no_grad():
        wanted = [made(torch.tensor([text]))[0, :, :VOCAB] for text in texts]
    fast = Runner(made, VOCAB, EOS, 80)
    assert isinstance(fast.fused, Fused)
    cache = fast.cache(5)
    ends = [3, 50, 17, 1, 24]
    found = fast.forward(cache, 0, [text[:end] for text, end in zip(texts, ends, strict=True)])
    for width in (1, 1, 3, 1, 2):
        for row, end in enumerate(ends):
            torch.testing.assert_close(found[row], wanted[row][end - 1], atol=2e-4, rtol=1e-3)
        found = fast.forward(
            cache, 0, [text[end : end + width] for text, end in zip(texts, ends, strict=True)]
        )
        ends = [end + width for end in ends]
    with torch.no_grad():  # the model itself still works, on its own weights
        torch.testing.assert_close(
            made(torch.tensor([texts[0]]))[0, :, :VOCAB], wanted[0], atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize(
    "settings",
    [{"preset": "gpt2"}, {"value_embeddings": "all"}, {"moe": {"experts": 4, "ffn_dim": 32}}, {"bias": True}],
    ids=["gpt2", "value_embeddings", "experts", "bias"],
)
def test_other_models_take_their_own_layers(settings: dict[str, Any]) -> None:
    assert Runner(model(**settings), VOCAB, EOS, 48).fused is None


def test_weights_of_a_model_of_its_own_are_freed() -> None:
    """And only then: a model that is used elsewhere keeps them."""
    texts = prompts(3, seed=4)
    found = []
    for sole in (False, True):
        made = model()
        runner = Runner(made, VOCAB, EOS, 48, sole=sole)
        kept = sum(p.numel() for p in made.layers.parameters())
        found.append(runner.forward(runner.cache(3), 0, texts))
        left = sum(p.numel() for p in made.layers.parameters() if p.dim() == 2)
        assert left == 0 if sole else left > kept / 2
    assert torch.equal(*found)
