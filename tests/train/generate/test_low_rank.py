"""Several adapters beside one model: each row's logits and texts are those of the model that its adapter is merged into."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from corpusmill.schemas.adapter import AdapterConfig
from corpusmill.schemas.generation import Sampling
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.low_bits import Bits
from corpusmill.train.generate.low_rank import LowRank
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.runner import Runner
from corpusmill.train.model.adapters import adapted, merge, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.compress.quantise import quantise
from corpusmill.train.tools.compress.report import matrices
from tests.train.generate.models import EOS, VOCAB, model, prompts, uncached

ADAPTERS: list[dict[str, Any]] = [
    {"rank": 4, "alpha": 8.0}, {"rank": 2, "alpha": 2.0, "dora": True, "targets": ["q", "v", "down"]},
    {"rank": 8, "rslora": True, "targets": ["k", "o", "up"]},
]  # fmt: skip


def adapted_model(base: Decoder, seed: int, **adapter: Any) -> Decoder:
    """A copy with an adapter that changes it clearly."""
    found, generator = copy.deepcopy(base), torch.Generator().manual_seed(seed)
    with_adapters(found, AdapterConfig(**adapter), seed)
    with torch.no_grad():
        for linear in adapted(found).values():
            linear.lora_b.add_(torch.randn(linear.lora_b.shape, generator=generator), alpha=0.2)
            if linear.magnitude is not None:
                linear.magnitude.copy_(1 + torch.rand(linear.magnitude.shape, generator=generator))
    return found


def several(
    base: Decoder, context: int = 48, precision: str = "fp32", weights: Bits | None = None
) -> tuple[Runner, list[Decoder]]:
    """A model with adapters beside it, and the models that each of them, from 0 on, makes of it."""
    models = [adapted_model(base, seed, **one) for seed, one in enumerate(ADAPTERS)]
    made = Runner(base, VOCAB, EOS, context, precision, weights=weights)
    made.adapters = LowRank(models, made.dtype, made.folded)
    return made, [copy.deepcopy(base), *(merge(copy.deepcopy(one)) for one in models)]


@pytest.mark.parametrize(
    "settings",
    [{}, {"qk_norm": True, "kv_heads": 2}, {"activation": "relu2", "tie_embeddings": False}, {"layers": 1, "kv_heads": 1}],
)  # fmt: skip
@pytest.mark.parametrize(("precision", "weights"), [("fp32", None), ("bf16", None), ("fp32", "int8")])
def test_logits_are_those_of_merged_models(
    settings: dict[str, Any], precision: str, weights: Bits | None
) -> None:
    base = model(**settings, scale=2.0)
    if weights:  # as they would be rounded
        with torch.no_grad():
            for weight in matrices(base).values():
                weight.copy_(quantise(weight, 8).values())
    made, merged = several(base, precision=precision, weights=weights)
    texts = [list(range(1, 9)), list(range(9, 12)), list(range(2, 20)), [5], [7, 8]]
    which = [1, 0, 2, 3, 1]
    cache = made.cache(len(texts))
    found = [made.forward(cache, 0, texts, which), made.forward(cache, 0, [[3]] * 5, which)]
    for row, (text, number) in enumerate(zip(texts, which, strict=True)):
        alone = Runner(copy.deepcopy(merged[number]), VOCAB, EOS, 48, precision)
        own = alone.cache(1)
        for step, tokens in enumerate((text, [3])):
            wanted = alone.forward(own, 0, [tokens])[0]
            apart = float((found[step][row] - wanted).abs().max() / wanted.abs().max())
            assert apart < (1e-5 if precision == "fp32" and not weights else 0.05), (row, step)
    plain = made.cache(2)
    assert torch.equal(made.forward(plain, 0, texts[:2]), made.forward(made.cache(2), 0, texts[:2], [0, 0]))


def test_texts_are_those_of_merged_models() -> None:
    made, merged = several(model())
    engine = Engine(made, rows=3)
    one, sampling = prompts(1)[0], Sampling(max_tokens=12, temperature=0)
    asked = [Request(prompt, sampling, adapter=n % 4) for n, prompt in enumerate(prompts(8))]
    asked += [
        Request(one, sampling, adapter=n) for n in (0, 1, 1, 3)
    ]  # the same list, read once for each adapter
    for request in asked:
        engine.submit(request)
    assert all(event.end != "failed" for event in engine.run())
    for request in asked:
        wanted = uncached(merged[request.adapter], request.prompt, 12)
        assert request.tokens == wanted, request.adapter
    same = [request.tokens for request in asked[-4:]]
    assert same[1] == same[2] and len({tuple(tokens) for tokens in same}) > 1
