"""Products in few bits are those of the rounded weight, up to bfloat16; a compressed model's weights are its own again; models of all
kinds generate with them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.common.errors import UserError
from corpusmill.train.generate.low_bits import GROUP, Bits, LowBits, LowBitsLinear
from corpusmill.train.generate.runner import Runner
from corpusmill.train.tools.compress.quantise import quantise, regrouped
from corpusmill.train.tools.compress.report import matrices
from tests.train.generate.models import EOS, VOCAB, model, prompts

NEAR = 2**-7  # of the largest value: sums rounded to bfloat16, of products of rounded numbers


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rounded(weight: Tensor, bits: Bits, group: int = GROUP) -> Tensor:
    return quantise(weight, 8).values() if bits == "int8" else quantise(weight, 4, group).values()


@pytest.mark.parametrize("bits", ["int8", "int4"])
@pytest.mark.parametrize(("rows", "width"), [(64, 96), (37, 100), (1, 32), (160, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_a_product_is_that_of_the_rounded_weight(
    bits: Bits, rows: int, width: int, dtype: torch.dtype
) -> None:
    weight = normal(rows, width) + 0.3
    made, values = LowBits(weight, bits), rounded(weight, bits)
    for shape in ((1,), (2,), (3, 5), (70,)):
        x, y = normal(*shape, width, seed=1).to(dtype), normal(*shape, rows, seed=2)
        wanted = F.linear(x.float(), values)
        found = made(x)
        assert found.dtype == dtype and found.shape == wanted.shape
        assert (found.float() - wanted).abs().max() <= NEAR * wanted.abs().max()
        assert torch.equal(made.added(y, x), y + found.float())


@pytest.mark.parametrize("group", [32, 64, 128])
def test_weights_that_were_rounded_already_keep_their_values(group: int) -> None:
    for seed in range(3):
        weight = normal(48, 300, seed=seed) * 10.0 ** (seed - 2)
        weight[:, 5::9] = 0.0
        values = rounded(weight, "int4", group)
        assert torch.equal(regrouped(values, 4, GROUP).values(), values)
        assert not torch.equal(quantise(values, 4, GROUP).values(), values)
        eight = rounded(weight, "int8")
        assert torch.equal(rounded(eight, "int8"), eight)


def test_weights_that_were_not_are_rounded_as_by_compress() -> None:
    weight = normal(48, 300)
    found, wanted = regrouped(weight, 4, GROUP), quantise(weight, 4, GROUP)
    for a, b in zip(found[:-1], wanted[:-1], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("bits", "share"), [("int8", 0.26), ("int4", 0.16)])
def test_memory_is_a_quarter_or_about_a_sixth(bits: Bits, share: float) -> None:
    weight = normal(256, 512)
    assert LowBits(weight, bits).nbytes < share * weight.nbytes


@pytest.mark.parametrize("bits", ["int8", "int4"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"kv_heads": 2, "qk_norm": True}, {"preset": "gpt2"}, {"bias": True}, {"value_embeddings": "all"}],
    ids=["fused", "gqa and qk_norm", "gpt2", "bias", "value_embeddings"],
)
def test_logits_are_those_of_a_compressed_model(bits: Bits, settings: dict[str, Any]) -> None:
    made, texts = model(scale=1.5, **settings), prompts(4, longest=20, seed=2)
    values = copy.deepcopy(made)
    with torch.no_grad():
        for weight in matrices(values).values():
            weight.copy_(rounded(weight, bits))
    found = []
    for one, weights in ((values, None), (made, bits), (copy.deepcopy(values), bits)):
        runner = Runner(one, VOCAB, EOS, 48, weights=weights)
        cache = runner.cache(4)
        first = runner.forward(cache, 0, texts)
        found.append(torch.cat((first, runner.forward(cache, 0, [[5], [6], [7], [8]]))))
    wanted, largest = found[0], found[0].abs().max()
    for logits in found[1:]:
        assert (logits - wanted).abs().max() <= 0.05 * largest
    plain = Runner(model(scale=1.5, **settings), VOCAB, EOS, 48)
    kept = plain.forward(plain.cache(4), 0, texts)
    if bits == "int4":  # its rounding is no noise of bfloat16
        assert (found[1][:4] - kept).norm() > 2 * (found[1] - wanted)[:4].norm()


def test_routers_and_experts_stay_as_they_are() -> None:
    made = model(moe={"experts": 4, "ffn_dim": 32})
    runner = Runner(made, VOCAB, EOS, 48, weights="int8")
    left = [name for name, module in made.layers.named_modules() if isinstance(module, nn.Linear)]
    assert left and all(name.endswith("router") for name in left)
    assert sum(isinstance(module, LowBitsLinear) for module in made.layers.modules()) == 8
    assert runner.forward(runner.cache(2), 0, [[3, 4], [5]]).isfinite().all()


def test_what_queries_are_multiplied_with_stays_as_it_is() -> None:
    """Of latent attention: its cache holds no keys, which would be made of all positions for each token."""
    sizes = {"kv_rank": 32, "nope_head_dim": 16, "rope_head_dim": 16, "value_head_dim": 16}
    made = model(mla=sizes, scale=1.5)
    plain = Runner(copy.deepcopy(made), VOCAB, EOS, 48)
    runner = Runner(made, VOCAB, EOS, 48, weights="int8")
    left = [name for name, module in made.layers.named_modules() if isinstance(module, nn.Linear)]
    assert left == ["0.attention.kv_b", "1.attention.kv_b"]
    found, wanted = (r.forward(r.cache(2), 0, [[3, 4], [5]]) for r in (runner, plain))
    assert (found - wanted).abs().max() <= 0.05 * wanted.abs().max()


def test_elsewhere_than_on_a_cpu_it_is_refused() -> None:
    made = model()
    made.to("meta")
    with pytest.raises(UserError, match="--weights int4: computes on a CPU, not on meta; leave it out"):
        Runner(made, VOCAB, EOS, 48, weights="int4")
