"""The estimate of memory against tensors that are there: states to the byte, what autograd keeps within 2 %."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.schemas.outer import OuterConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.flops import active_weights
from corpusmill.train.optim import make_optimizer
from corpusmill.train.optim.make import prepare, quantised, state_tensors
from corpusmill.train.outer.worker import Outer
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.tools.estimate.layout import Layout, Shape, Weight, shape_of
from corpusmill.train.tools.estimate.memory import Work, layer_activations, memory, of_loss, of_stage
from tests.train.models import saved_bytes
from tests.train.optim.test_state import KINDS

V = 96
CONFIG = ModelConfig(dim=64, layers=3, heads=4, kv_heads=2, ffn_dim=160, vocab_multiple=8)
SHAPE = shape_of(CONFIG, V)
WORK = Work(2, 32, 16, OptimizerConfig(), precision="fp32", cpu=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("copies", [{}, {"ema": 0.9}, {"ema": 0.9, "hypergradient": {}}])
def test_parameters_gradients_and_states_are_exact(kind: Any, tied: bool, copies: dict[str, Any]) -> None:
    config = CONFIG.model_copy(update={"tie_embeddings": tied})
    optimizer_config = OptimizerConfig(kind=kind, **copies)
    model = Decoder(config, V)
    optimizer = make_optimizer(model, optimizer_config)
    prepare(optimizer)
    model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    found = memory(shape_of(config, V), Layout(), replace(WORK, optimizer=optimizer_config))
    assert found.parameters == sum(p.nbytes for p in model.parameters())
    assert found.gradients == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert found.optimizer == sum(tensor.nbytes for tensor in state_tensors(model, optimizer).values())


def test_what_a_worker_keeps_is_exact() -> None:
    """Of `outer`: what it has beside its optimizer's states, and while a fragment is under way."""
    config, model = OuterConfig(every=6, fragments=1), Decoder(CONFIG, V)
    optimizer = make_optimizer(model, WORK.optimizer)
    outer = Outer(config, ParallelModel([model]), optimizer, World())
    outer._send(list(outer.weights), 1)
    assert outer.flight is not None
    plain, found = memory(SHAPE, Layout(), WORK), memory(SHAPE, Layout(), replace(WORK, outer=config))
    kept = [*outer.common.values(), *outer.momentum.values()]
    assert found.optimizer - plain.optimizer == sum(value.nbytes for value in kept)
    under_way = [*outer.flight.sent.values(), *outer.flight.mean().values()]
    assert found.buffers - plain.buffers == sum(value.nbytes for value in under_way)
    apart = memory(SHAPE, Layout(), replace(WORK, outer=OuterConfig(every=6, fragments=3)))
    assert apart.buffers - plain.buffers == pytest.approx((found.buffers - plain.buffers) / 3)


def test_8_bit_states_are_exact() -> None:
    pytest.importorskip("torchao")
    config = OptimizerConfig(state_bits=8)
    model = Decoder(CONFIG, V)
    optimizer = make_optimizer(model, config)
    with torch.compiler.set_stance("force_eager"):  # sizes are asked for, not compiled code
        prepare(optimizer)
    found = memory(SHAPE, Layout(), replace(WORK, optimizer=config))
    states = state_tensors(model, optimizer).values()
    parts = [part for state in states for part in held(state)]
    assert len(parts) > len(states) and found.optimizer == sum(part.nbytes for part in parts)


def held(state: torch.Tensor) -> list[torch.Tensor]:
    """What a state keeps in memory: of a quantised one its codes, its scales and the values of codes."""
    if not quantised(state):
        return [state]
    return [getattr(state, name) for name in state.__tensor_flatten__()[0]]  # type: ignore[attr-defined]


def kept_by_autograd(config: ModelConfig, precision: str, documents: bool) -> int:
    """Bytes of the storages that a forward pass keeps for the backward, the parameters' own left out."""
    model = Decoder(config, V)
    tokens = torch.arange(64).view(2, 32)
    numbers = (torch.arange(32) > 15).long().expand(2, 32) if documents else None
    bf16 = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    with bf16:
        return saved_bytes(
            lambda: model(tokens, tokens, numbers, keys=torch.tensor([1, 2])).sum(), model.parameters()
        )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tie_embeddings": False, "kv_heads": 4, "ffn_dim": 96},
        {"value_embeddings": "all", "kv_heads": 2},
        {"qk_norm": True, "activation": "relu2", "ffn_dim": 256},
        {"window": 8, "global_every": 3, "nope_every": 3},
        {"attention_softcap": 20.0, "attention_sinks": True},
        {"logit_softcap": 20.0},
        {"value_residual": True, "kv_heads": 2},
        {
            "kv_heads": 4,
            "mla": {"kv_rank": 24, "nope_head_dim": 16, "rope_head_dim": 8, "value_head_dim": 16},
        },
        {
            "kv_heads": None,
            "mla": {
                "kv_rank": 20,
                "q_rank": 28,
                "nope_head_dim": 10,
                "rope_head_dim": 6,
                "value_head_dim": 16,
            },
        },
        {
            "kv_heads": None,
            "mla": {"nope_head_dim": 8, "rope_head_dim": 8, "value_head_dim": 8, "q_rank": 40},
            "window": 8,
            "attention_sinks": True,
        },
        {"causal": False},
        {"causal": False, "window": 8, "global_every": 2, "attention_sinks": True},
        {"mup_base_width": 16, "mup_base_head_dim": 4},
        {"mtp": 1},
        {
            "mtp": 1,
            "kv_heads": 4,
            "mla": {"kv_rank": 24, "nope_head_dim": 16, "rope_head_dim": 8, "value_head_dim": 16},
        },
        {"mtp": 2, "kv_heads": 4, "logit_softcap": 20.0},
        {"mtp": 2, "qk_norm": True, "tie_embeddings": False, "loss_chunk": 16},
        {"window": 8, "global_every": 2, "attention_sinks": True, "kv_heads": 4},
    ],
)
def test_activations_are_what_autograd_keeps(
    precision: str, dropout: float, documents: bool, more: dict[str, Any]
) -> None:
    config = ModelConfig(**{**CONFIG.model_dump(), "dropout": dropout, **more})
    work = replace(WORK, precision=precision, documents=documents)
    found = memory(shape_of(config, V), Layout(), work)
    log_softmax = 4 * work.tokens * V * (2 if config.logit_softcap else 1)  # and tanh
    if config.loss_chunk:  # instead the gradient of the head, computed ahead
        log_softmax = 4 * V * config.dim
    log_softmax *= 1 + (config.mtp or 0)
    measured = kept_by_autograd(config, precision, documents)
    assert found.activations + found.buffers + log_softmax == pytest.approx(measured, rel=0.02)


def test_zero_shards_states_then_gradients_then_parameters() -> None:
    n = SHAPE.parameters
    found = [memory(SHAPE, Layout(dp=4, zero=zero), WORK) for zero in range(4)]
    assert [m.parameters for m in found] == [4 * n, n, n, n]
    assert [m.gradients for m in found] == [4 * n, 4 * n, n, n]
    assert found[0].optimizer == 4 * found[1].optimizer == 4 * found[3].optimizer
    layer, embedding = sum(w.numel for w in SHAPE.by_layer[0]), V * 64
    assert found[1].buffers == 4 * n  # the gathered parameters
    assert found[2].buffers == 4 * n + 8 * layer
    assert found[3].buffers == 8 * layer + 8 * layer and layer > embedding


def test_tensor_parallelism_cuts_products_and_the_sequence_outside_of_them() -> None:
    one = layer_activations(SHAPE, Layout(), WORK, 0)
    whole = layer_activations(SHAPE, Layout(tp=2), WORK, 0)
    assert whole == one / 2
    norms = sum(w.numel for w in SHAPE.weights if w.kind == "norms")
    found = memory(SHAPE, Layout(tp=2), WORK)
    assert found.parameters == 4 * ((SHAPE.parameters - norms) / 2 + norms)


@pytest.mark.parametrize(
    ("schedule", "chunks", "wanted"),
    [
        ("gpipe", 1, 8),
        ("1f1b", 1, 4),
        ("zero_bubble", 1, 4),
        ("zero_bubble", 2, 4),
        ("interleaved", 2, 4 * (1 + 3 / (4 * 2))),
    ],
)
def test_micro_batches_in_flight(schedule: Any, chunks: int, wanted: float) -> None:
    layout = Layout(pp=4, schedule=schedule, chunks=chunks)
    assert layout.in_flight(0, 8) == wanted  # interleaved: L (1 + (p - 1) / (p m)), Korthikanti et al. 2022
    assert layout.in_flight(3, 8) <= wanted and layout.in_flight(0, 2) <= 2


def test_groups_of_hybrid_sharding_hold_what_their_own_size_gives() -> None:
    assert memory(SHAPE, Layout(dp=8, zero=3, replicate=4), WORK) == memory(SHAPE, Layout(dp=2, zero=3), WORK)


def test_stages_hold_all_layers_once_and_a_tied_embedding_twice() -> None:
    layout = Layout(pp=2)
    stages = [of_stage(SHAPE, layout, WORK, stage) for stage in (0, 1)]
    assert sum(stage.parameters for stage in stages) == 4 * (SHAPE.parameters + V * 64)
    assert stages[0].logits == 0 < stages[1].logits
    assert memory(SHAPE, layout, WORK).total == max(stage.total for stage in stages)


def test_checkpointing_keeps_less_and_full_the_inputs_of_layers() -> None:
    none, selective, full = (
        memory(SHAPE, Layout(), replace(WORK, checkpointing=kind)).activations
        for kind in ("none", "selective", "full")
    )
    one = layer_activations(SHAPE, Layout(), WORK, 0)
    half = memory(SHAPE, Layout(), replace(WORK, checkpointing="budget", budget=0.5)).activations
    assert half - full == 3 * (0.5 * one - 4 * 64 * WORK.tokens)
    again = one - memory(SHAPE, Layout(), WORK).logits  # while a layer is computed again, the logits are gone
    assert again > 0 and none - 3 * one + 3 * 4 * 64 * WORK.tokens + again == full < selective < none


def test_the_loss_needs_what_its_chunks_need() -> None:
    """Whole, three tensors of logits in float32, compiled one; in chunks, those of a chunk, and the head's gradient."""
    eager = replace(WORK, cpu=False, precision="bf16")
    compiled = replace(eager, compiled=True)
    assert of_loss(SHAPE, Layout(), eager) == 64 * V * 12 and of_loss(SHAPE, Layout(), compiled) == 64 * V * 2
    chunked, head = replace(SHAPE, loss_chunk=16), V * 64 * 6
    assert of_loss(chunked, Layout(), eager) == 16 * V * 10 + head
    assert (
        of_loss(chunked, Layout(), compiled)
        == 16 * V * 6 + head
        == of_loss(chunked, Layout(), replace(eager, cpu=True))
    )
    assert of_loss(chunked, Layout(tp=2), eager) == of_loss(chunked, Layout(), eager) / 2
    # Divided by tensor parallelism it is not compiled.
    assert (
        of_loss(SHAPE, Layout(tp=2), compiled)
        == of_loss(SHAPE, Layout(tp=2), eager)
        == (64 * V * 10 + head) / 2
    )


def test_experts_are_dealt_out_and_compute_top_k() -> None:
    def layer(number: int) -> tuple[Weight, ...]:
        names = {"q": (64, 64), "k": (64, 64), "v": (64, 64), "o": (64, 64)}
        dense = [
            Weight(f"layers.{number}.attention.{k}.weight", s, "matrices", number) for k, s in names.items()
        ]
        experts = [
            Weight(f"layers.{number}.ffn.{name}", (8, *shape), "matrices", number, (("expert", 0),))
            for name, shape in {"gate": (32, 64), "up": (32, 64), "down": (64, 32)}.items()
        ]
        return (*dense, *experts, Weight(f"layers.{number}.ffn.router.weight", (8, 64), "matrices", number))

    embedding = Weight("embedding.weight", (V, 64), "embeddings", None)
    shape = Shape((*layer(0), *layer(1), embedding), 2, 4, 4, 0.0, top_k=2)
    assert shape.experts == 8 and shape.has_experts(1)
    dense = 2 * (4 * 64 * 64 + 8 * 64) + V * 64
    stacks = 2 * 3 * 8 * 32 * 64
    assert memory(shape, Layout(dp=4, ep=4), WORK).parameters == 4 * (dense + stacks / 4)
    assert memory(shape, Layout(dp=8, ep=4, zero=1), WORK).parameters == 4 * (dense / 8 + stacks / 8)
    assert active_weights(shape.sizes, shape.top_k) == dense + stacks * 2 / 8  # the embedding is the head
    twice = layer_activations(replace(shape, top_k=4), Layout(), WORK, 0)
    assert twice - layer_activations(shape, Layout(), WORK, 0) == WORK.tokens * 4 * 2 * (4 * 32 + 2 * 64)
    shared = Weight("layers.0.ffn.shared.up.weight", (16, 64), "matrices", 0)
    wider = layer_activations(replace(shape, weights=(*shape.weights, shared)), Layout(), WORK, 0)
    assert wider - layer_activations(shape, Layout(), WORK, 0) == WORK.tokens * 4 * 4 * 16


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"window": 64, "global_every": 4},
        {"window": 64, "attention_sinks": True, "attention_softcap": 9.0},
        {"logit_softcap": 9.0},
        {
            "kv_heads": None,
            "mla": {"kv_rank": 64, "nope_head_dim": 32, "rope_head_dim": 16, "value_head_dim": 32},
        },
    ],
)
def test_the_tracked_peak_of_a_step_is_what_is_estimated(precision: str, more: dict[str, Any]) -> None:
    """Parameters, gradients, states and activations together, at the highest moment of two micro-batches and an update."""
    from torch.distributed._tools.mem_tracker import MemTracker

    config, optimizer_config = (
        ModelConfig(**{"dim": 128, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_dim": 352, **more}),
        OptimizerConfig(),
    )
    model = Decoder(config, V)
    optimizer = make_optimizer(model, optimizer_config)
    tokens = torch.arange(8 * 256).view(8, 256) % V
    tracker = MemTracker()
    tracker.track_external(model, optimizer, tokens)
    with tracker:
        for _ in range(2):
            for _ in range(2):
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                    loss = model(tokens, tokens).sum()
                loss.backward()
                tracker.reset_mod_stats()  # of modules; it asks for that
            optimizer.step()
            optimizer.zero_grad()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    work = Work(8, 256, 16, optimizer_config, precision, cpu=True)
    assert memory(shape_of(config, V), Layout(), work).total == pytest.approx(peak, rel=0.05)
