"""Checkpointing and offload: the same gradients to the bit, and as much less memory as `corpusmill estimate` computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.schemas.parallel import MemoryConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.precision.adapt import apply_checkpointing, offloaded
from corpusmill.train.tools.estimate.layout import Layout, shape_of
from corpusmill.train.tools.estimate.memory import Work, layer_activations, memory

V, ROWS, LENGTH = 96, 2, 32
BASE: dict[str, Any] = {"dim": 64, "layers": 8, "heads": 4, "kv_heads": 2, "ffn_dim": 128}
MOE = {"experts": 4, "ffn_dim": 32, "first": 1, "balance": "loss", "router_z_loss": 1e-3}
CPU = torch.device("cpu")


def model_of(kind: Any, **more: Any) -> Decoder:
    config = ModelConfig(**{**BASE, **more})
    model = Decoder(config, V, seed=3)
    apply_checkpointing(model, MemoryConfig(checkpointing=kind))
    return model.train()


def tokens_and_documents() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, V, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    return tokens, (torch.arange(LENGTH) > 15).long().expand(ROWS, LENGTH)


@pytest.mark.parametrize("kind", ["full", "selective"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "more",
    [
        {"qk_norm": True, "value_embeddings": "all", "layers": 2},
        {"dropout": 0.2, "layers": 2},
        {"moe": MOE, "layers": 2},
    ],
)
def test_gradients_are_equal_to_the_bit(kind: str, precision: str, more: dict[str, Any]) -> None:
    tokens, documents = tokens_and_documents()
    found = []
    for how, offload in (("none", "none"), (kind, "none"), (kind, "activations")):
        model = model_of(how, **more)
        names = list(model.state_dict())
        bf16 = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
        with bf16, offloaded(MemoryConfig(offload=offload), CPU):
            loss = model(tokens, tokens, documents, keys=torch.arange(ROWS))
        loss.sum().backward()
        found.append((loss.detach(), {name: p.grad for name, p in model.named_parameters()}, names))
    for loss, gradients, names in found[1:]:
        assert torch.equal(loss, found[0][0]) and names == found[0][2]
        for name, gradient in gradients.items():
            assert gradient is not None and gradient.any() and torch.equal(gradient, found[0][1][name]), name


class Alive(TorchDispatchMode):
    """Remembers every storage that operations make, without keeping it alive."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.found[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
        return result

    def bytes(self, but: set[int]) -> int:
        return sum(size for key, (ref, size) in self.found.items() if key not in but and not ref.expired())


@pytest.mark.parametrize("kind", ["none", "selective", "full"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("split", [False, True])
def test_what_a_forward_pass_keeps_is_what_the_estimate_says(kind: Any, precision: str, split: bool) -> None:
    """Not by `saved_tensors_hooks`: what `selective` keeps does not pass through them."""
    model = model_of(kind)
    tokens, documents = tokens_and_documents()
    outside = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), tokens, documents)}
    alive = Alive()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"), alive:
        loss = model(tokens, tokens, documents if split else None)
    measured = alive.bytes(outside)
    shape = shape_of(ModelConfig(**BASE), V)
    work = Work(ROWS, LENGTH, ROWS, OptimizerConfig(), precision, kind, cpu=True, documents=split)
    estimated = memory(shape, Layout(), work)
    kept = estimated.activations + 4 * work.tokens * V  # and the log-softmax
    if kind == "none":
        kept += estimated.buffers  # casts of the weights, which a checkpointed layer makes again
    else:  # the layer that is computed again is not yet there
        again = layer_activations(shape, Layout(), replace(work, checkpointing="none"), 0)
        kept -= max(again - estimated.logits, 0.0)
        if precision == "bf16":
            kept += 2 * V * 64  # the head's
    assert measured == pytest.approx(kept, rel=0.05) and loss.requires_grad


def test_nothing_is_checkpointed_where_nothing_is_asked_for() -> None:
    model = Decoder(ModelConfig(**BASE), V)
    apply_checkpointing(model, MemoryConfig())
    apply_checkpointing(model, MemoryConfig(checkpointing="budget", budget=0.5))
    assert not any("forward" in vars(layer) for layer in model.layers.values())
