"""What is left of a narrower decoder: exactly its parts, the ones with the largest activations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.schemas.compression import CompressionSettings
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.compress.calibrate import Stream
from corpusmill.train.tools.compress.width import (
    Importance,
    axes_of,
    importance,
    largest,
    narrower,
    without_width,
)
from tests.train.evaluate.scorer_layouts import batches
from tests.train.generate.models import VOCAB, model
from tests.train.models import KINDS, model_of

SHAPES: list[dict[str, Any]] = [
    {},
    {"kv_heads": 2, "bias": True, "qk_norm": True, "tie_embeddings": False},
    {"preset": "gpt2"},
]


def settings(**sizes: int) -> CompressionSettings:
    return CompressionSettings.model_validate({"method": "width", **sizes})


def ids() -> Tensor:
    return torch.randint(0, VOCAB, (2, 20), generator=torch.Generator().manual_seed(0))


def cut(made: Decoder, **sizes: int) -> Decoder:
    return without_width(
        made, narrower(made.config, settings(**sizes)), importance(made, Stream(made, batches(1)))
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_leaving_out_what_adds_nothing_changes_nothing(shape: dict[str, Any]) -> None:
    """Neurons that give nothing, and heads whose values are zero: others in each layer."""
    made = model(**shape)
    each = made.config.heads // made.config.key_value_heads
    size = made.config.head_size
    with torch.no_grad():
        for number, layer in made.layers.items():
            first = int(number)
            for name in ("ffn.up.weight", "ffn.up.bias"):
                if name in dict(layer.named_parameters()):
                    layer.get_parameter(name)[first::4] = 0.0
            group = first % made.config.key_value_heads
            for name in ("attention.v.weight", "attention.v.bias"):
                if name in dict(layer.named_parameters()):
                    layer.get_parameter(name)[group * size : (group + 1) * size] = 0.0
    smaller = cut(made, ffn_dim=48, heads=4 - each)
    assert (smaller.config.hidden, smaller.config.heads) == (48, 4 - each)
    assert smaller.config.head_size == size
    assert smaller.config.heads // smaller.config.key_value_heads == each
    # In double precision: sums of fewer terms round otherwise, by more than 2e-5 on some processors.
    torch.testing.assert_close(smaller.double()(ids()), made.double()(ids()), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_parameter_is_a_part_of_the_one_before(shape: dict[str, Any]) -> None:
    made = model(**shape)
    smaller = cut(made, dim=24, ffn_dim=40)
    before = made.state_dict()
    channels = importance(made, Stream(made, batches(1))).channels
    kept = largest(channels, 24)
    assert torch.equal(smaller.embedding.weight, before["embedding.weight"][:, kept])
    for name, value in smaller.state_dict().items():
        axes = axes_of(name)
        wanted = {"channels": 24, "neurons": 40}
        assert value.shape == tuple(
            wanted.get(axis or "", size) for axis, size in zip(axes, before[name].shape, strict=True)
        )
        for dim, axis in enumerate(axes):
            if axis == "channels":
                assert torch.isin(value, before[name].index_select(dim, kept)).all(), name
    assert smaller(ids()).isfinite().all()


def test_the_largest_activations_stay() -> None:
    made = model(kv_heads=2)
    with torch.no_grad():  # neuron 5 and the second pair of heads give more than all others
        layer = made.layers["0"]
        layer.get_parameter("ffn.up.weight")[5] *= 50
        layer.get_parameter("attention.v.weight")[8:] *= 50
    found = importance(made, Stream(made, batches(1)))
    assert int(found.neurons[0].argmax()) == 5 and int(found.groups[0].argmax()) == 1
    smaller = without_width(made, narrower(made.config, settings(ffn_dim=1, heads=2)), found)
    part, whole = smaller.state_dict(), made.state_dict()
    assert torch.equal(part["layers.0.ffn.up.weight"], whole["layers.0.ffn.up.weight"][5:6])
    assert torch.equal(part["layers.0.ffn.down.weight"], whole["layers.0.ffn.down.weight"][:, 5:6])
    assert torch.equal(part["layers.0.attention.q.weight"], whole["layers.0.attention.q.weight"][16:])
    assert torch.equal(part["layers.0.attention.o.weight"], whole["layers.0.attention.o.weight"][:, 16:])


def test_activations_are_root_mean_squares_over_all_layers() -> None:
    made = model()
    stream = Stream(made, batches(1))
    wanted = torch.zeros(32, dtype=torch.float64)
    for layer in made.layers.values():
        found = stream.measure(layer, False)
        wanted += found["attention.q.weight"].squares.sqrt() + found["ffn.up.weight"].squares.sqrt()
        stream.advance(layer)
    found_at_once: Importance = importance(made, Stream(made, batches(1)))
    assert torch.equal(found_at_once.channels, wanted)
    assert [len(neurons) for neurons in found_at_once.neurons] == [64, 64]


def test_all_parameters_have_axes() -> None:
    for kind in ("llama free", "gpt2"):
        for name, value in model_of(KINDS[kind][1]).named_parameters():
            assert len(axes_of(name)) == value.ndim, name


@pytest.mark.parametrize(
    ("sizes", "changed"),
    [
        ({"ffn_dim": 32}, {"ffn_dim": 32}),
        ({"heads": 2}, {"heads": 2, "kv_heads": 1, "head_dim": 8}),
        ({"dim": 16}, {"dim": 16, "head_dim": 8, "ffn_dim": 64}),
    ],
)
def test_the_config_says_what_is_left(sizes: dict[str, int], changed: dict[str, int]) -> None:
    before = model(kv_heads=2).config
    after = narrower(before, settings(**sizes)).model_dump()
    assert {name: after[name] for name, value in before.model_dump().items() if after[name] != value} == (
        {name: value for name, value in changed.items() if getattr(before, name) != value}
    )
    for size in (64, 65):
        with pytest.raises(UserError, match=f"--ffn-dim {size}: the model has 64: give fewer"):
            narrower(before, settings(ffn_dim=size))


def test_channels_of_a_transferred_width_stay() -> None:
    """muP divides logits by dim / mup_base_width: a narrower stream would have others."""
    before = ModelConfig(dim=32, heads=4, ffn_dim=48, mup_base_width=16)
    with pytest.raises(UserError, match="--dim 24: model.mup_base_width 16 divides logits"):
        narrower(before, settings(dim=24))
    assert narrower(before, settings(ffn_dim=24)).width_ratio == 2
    with pytest.raises(UserError, match=r"model\.mla: width is left out of heads with keys of their own"):
        narrower(ModelConfig(mla={}), settings(ffn_dim=24))
