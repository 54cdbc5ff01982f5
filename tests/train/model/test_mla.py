"""Latent attention: its sizes are those of DeepSeek's, what it computes is one attention in two forms, what it cannot have beside it is
refused. (`test_decoder.py` has it written out, `test_transformers.py` compares logits and gradients with DeepSeek-V3's.)"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.attend import Boundaries
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.mla import LatentAttention
from corpusmill.train.tools.estimate.layout import shape_of
from tests.train.models import MLA, model_of


def test_sizes_of_deepseek_v3() -> None:
    """Its report, section 4.2: 61 layers of 7,168, the first three dense, 1 + 8 of 257 experts; 671 B parameters, 37 B of them active."""
    experts = {"experts": 256, "top_k": 8, "ffn_dim": 2048, "shared_experts": 1, "first": 3}
    shape: dict[str, Any] = {
        "dim": 7168,
        "layers": 61,
        "heads": 128,
        "ffn_dim": 18432,
        "tie_embeddings": False,
    }
    config = ModelConfig(**shape, mla={"q_rank": 1536}, moe=experts)
    with torch.device("meta"):
        model = Decoder(config, 129280)
    assert model.parameter_count == pytest.approx(671e9, rel=0.001)
    one = {name: p.numel() for name, p in model.layers["0"].attention.named_parameters()}
    assert one == {
        "q_a.weight": 7168 * 1536, "q_a_norm.weight": 1536, "q_b.weight": 1536 * 128 * 192, "kv_a.weight": 7168 * (512 + 64),
        "kv_a_norm.weight": 512, "kv_b.weight": 512 * 128 * 256, "o.weight": 128 * 128 * 7168,
    }  # fmt: skip
    active = model.flops_per_token(0 + 1) - 6 * 61 * 128 * (192 + 128) / 2
    assert active / 6 == pytest.approx(37e9, rel=0.02)
    # Of attention: q k of 192 dimensions and weights times values of 128, forward and backward, half of them masked.
    more = model.flops_per_token(4096) - model.flops_per_token(2048)
    assert more == pytest.approx(3 * 61 * 128 * (192 + 128) * 2048)
    assert config.kept == (1, 1, 576) and shape_of(config, 129280).rotated == 64


@pytest.mark.parametrize("more", [{}, {"q_rank": 12}, {"value_head_dim": 12, "rope_head_dim": 6}])
@pytest.mark.parametrize("softcap", [None, 0.5])
def test_absorbed_keys_and_values_are_the_expanded_ones(more: dict[str, Any], softcap: float | None) -> None:
    layer = model_of({"mla": {**MLA, **more}, "attention_softcap": softcap}).layers["0"].attention
    assert isinstance(layer, LatentAttention)
    of, generator = layer.sizes, torch.Generator().manual_seed(0)
    q, kept = (
        torch.randn(2, heads, count, size, generator=generator, dtype=torch.float64)
        for heads, count, size in ((4, 5, of.head_size), (1, 9, of.kept))
    )
    layer.double()
    mask = torch.rand(2, 1, 5, 9, generator=generator) < 0.6
    mask[..., 0] = True
    found = layer.absorbed(q, kept, Boundaries(mask=mask))
    k, v = layer.expanded(kept[:, 0, :, : of.kv_rank], kept[..., of.kv_rank :])
    assert k.shape == v.shape == (2, 4, 9, of.head_size) and not v[..., of.value_head_dim :].any()
    scores = q @ k.transpose(-1, -2) / of.head_size**0.5
    scores = scores if softcap is None else softcap * (scores / softcap).tanh()
    wanted = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v[..., : of.value_head_dim]
    close = (
        {"atol": 1e-10, "rtol": 1e-8} if softcap is None else {"atol": 1e-5, "rtol": 1e-4}
    )  # which is float32
    torch.testing.assert_close(found, wanted, **close)


def test_documents_in_one_row_are_as_documents_in_rows_of_their_own() -> None:
    model = model_of({"mla": {**MLA, "q_rank": 12}, "window": 6, "global_every": 2})
    ids = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(0))
    documents = torch.tensor([[0] * 7 + [1] * 13])
    positions = torch.tensor([[*range(7), *range(13)]])
    packed = model(ids, documents=documents, positions=positions)
    torch.testing.assert_close(packed[:, :7], model(ids[:, :7]))
    torch.testing.assert_close(packed[:, 7:], model(ids[:, 7:]))
    assert not torch.allclose(model(ids)[:, 7:], packed[:, 7:], atol=1e-3)


def test_yarn_sharpens_all_scores() -> None:
    """Those without rotation by as much: with queries that rotation leaves 0, twice the sharper ones are those of longer queries."""
    scaling = {"kind": "yarn", "factor": 4.0, "original_length": 16}
    plain, sharp = (model_of({"mla": MLA, "layers": 1, "rope_scaling": s}) for s in (None, scaling))
    factor = (0.1 * torch.tensor(4.0).log() + 1) ** 2
    ids = torch.randint(0, 50, (1, 20), generator=torch.Generator().manual_seed(0))
    rotated = torch.arange(4 * 12).view(4, 12)[:, 8:].flatten()
    with torch.no_grad():
        for model in (plain, sharp):
            model.layers["0"].attention.q.weight[rotated] = 0.0
        assert not torch.allclose(plain(ids), sharp(ids), atol=1e-4)
        plain.layers["0"].attention.q.weight.mul_(factor)
        torch.testing.assert_close(plain(ids), sharp(ids))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_heads": 2}, "kv_heads 2: mla gives each head keys and values of its own, and keeps none of them: set kv_heads to null"),
        ({"head_dim": 8}, "head_dim 8: mla has sizes of its own (mla.nope_head_dim, rope_head_dim, value_head_dim): set head_dim to null"),
        ({"preset": "gpt2"}, "positions learned: mla rotates a part of each key: set positions to rope, or leave mla out"),
        ({"bias": True}, "bias true: mla has no biases: set bias to false"),
        ({"qk_norm": True}, "qk_norm true: mla norms the vectors that queries and keys are made of: set qk_norm to false"),
        ({"value_embeddings": "all"}, "value_embeddings all: mla keeps no values"),
        ({"value_residual": True}, "value_residual true: mla keeps no values"),
        ({"mup_base_width": 16}, "mup_base_width 16: mla has ranks that need not grow with dim"),
        ({"mla": {"rope_head_dim": 5}}, "rope_head_dim 5 is odd, and RoPE rotates pairs: set it to 6"),
        ({"mla": {"nope_head_dim": 8, "rope_head_dim": 4, "value_head_dim": 13}}, "value_head_dim 13 exceeds nope_head_dim + rope_head_dim = 12"),
        ({"mla": {"rope_head_dim": 2}, "rope_scaling": {"kind": "ntk", "factor": 2.0}}, "rope_scaling.kind ntk needs heads of 4 or more"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        validate(ModelConfig, {"mla": {}, **settings}, "train.yaml")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_config_without_it_is_kept_without_it() -> None:
    assert "mla" not in ModelConfig().model_dump()
    config = ModelConfig(dim=30, heads=4, kv_heads=4, mla=MLA)  # dim need not be a multiple of heads
    assert ModelConfig.model_validate(config.model_dump()) == config and config.head_size == 12
