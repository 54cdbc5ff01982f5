"""States and batches of the checks, from torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from corpusmill.schemas.training import TrainConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.optim.make import state_tensors
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.parallel.sharded_parameter import local
from corpusmill.train.precision.adapt import apply_checkpointing, compile_layers
from corpusmill.train.precision.fp8 import use_fp8
from corpusmill.train.precision.loss_scale import LossScale
from corpusmill.train.step import TrainState
from tests.gpu.machines import Machine

VOCAB, ROWS, LENGTH = 90, 4, 32
MODEL = {"dim": 64, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 96, "vocab_multiple": 16}
MOE = {"experts": 4, "top_k": 2, "ffn_dim": 32, "bias_rate": 0.25, "router_z_loss": 1e-2, "first": 1}
KINDS = ("adamw", "muon", "lion", "lamb", "adafactor", "sgd")

# Of a step that is not logged, no matter which, nothing may wait: dotted keys of the config, by the case's name.
CASES: dict[str, dict[str, Any]] = {
    **{kind: {"optimizer.kind": kind} for kind in KINDS},
    **{f"bf16 {kind}": {"optimizer.kind": kind, "precision": "bf16"} for kind in ("adamw", "muon")},
    "fp16": {"precision": "fp16"}, "fp16 muon": {"precision": "fp16", "optimizer.kind": "muon"},
    "fp16 lamb": {"precision": "fp16", "optimizer.kind": "lamb"},
    "accumulation": {"data.micro_batch": 2}, "one document a row": {"data.cross_documents": True},
    "dropout": {"model.dropout": 0.1, "data.micro_batch": 2}, "loss_chunk": {"model.loss_chunk": 40, "precision": "bf16"},
    "clipped by value": {"optimizer.grad_clip_value": 1e-3}, "not clipped": {"optimizer.grad_clip": None},
    "no guard": {"guard.enabled": False}, "experts": {"model.moe": MOE, "precision": "bf16"},
    "experts with losses": {
        "model.moe": {**MOE, "balance": "loss"}, "model.z_loss": 1e-3, "precision": "bf16", "data.micro_batch": 2
    },
    "gpt2": {
        "model": {"preset": "gpt2", "dim": 32, "layers": 2, "heads": 4, "ffn_dim": 64, "max_positions": 32, "vocab_multiple": 8}
    },
    # The end of text stands for a mask: the data has no other special token.
    "both sides": {"model.causal": False, "data.masking": {"token": "<|endoftext|>", "whole_words": False}, "precision": "bf16"},
    "both sides, local": {
        "model.causal": False, "model.window": 5, "model.global_every": 2, "precision": "bf16", "data.micro_batch": 2,
        "data.masking": {"token": "<|endoftext|>", "share": 0.3, "whole_words": False},
    },
    "both sides, fp32": {
        "model.causal": False, "model.window": 5, "model.attention_sinks": True,
        "data.masking": {"token": "<|endoftext|>", "whole_words": False},
    },
    "latent": {
        "model.mla": {"kv_rank": 16, "q_rank": 24, "nope_head_dim": 16, "rope_head_dim": 8, "value_head_dim": 16},
        "model.kv_heads": None, "precision": "bf16", "data.micro_batch": 2,
    },
    "latent, fp32": {
        "model.mla": {"kv_rank": 16, "nope_head_dim": 16, "rope_head_dim": 8, "value_head_dim": 16}, "model.kv_heads": None,
        "model.window": 5, "model.attention_sinks": True,
    },
    "checkpointing": {"memory.checkpointing": "full", "precision": "bf16"},
    "selective": {"memory.checkpointing": "selective", "precision": "bf16"},
    "offloaded": {"memory.offload": "activations"},
    "offloaded, checkpointing": {"memory.offload": "activations", "memory.checkpointing": "full", "precision": "bf16"},
}  # fmt: skip


def config_of(settings: dict[str, Any]) -> TrainConfig:
    """`settings`: dotted keys."""
    given: dict[str, Any] = {
        "name": "check", "precision": "fp32", "model": MODEL, "optimizer": {"lr": 3e-3},
        "data": {"shards": "-", "sequence_length": LENGTH, "global_batch": ROWS, "micro_batch": ROWS},
        "schedule": {"steps": 100, "warmup_steps": 1, "kind": "constant"},
    }  # fmt: skip
    for key, value in settings.items():
        section, _, last = key.rpartition(".")
        given |= {section: {**given.get(section, {}), last: value}} if section else {last: value}
    found: TrainConfig = TrainConfig.model_validate(given)
    return found


def state_of(machine: Machine, settings: dict[str, Any], compiled: bool = False) -> TrainState:
    """A state on the machine's device, from the same first values on each."""
    config = config_of(settings)
    model = machine.moved(Decoder(config.model, VOCAB, config.seed))
    if config.precision == "fp8":
        use_fp8(model, torch.device("cpu") if machine.device.type == "cpu" else machine.device)
    apply_checkpointing(model, config.memory)
    if compiled:
        compile_layers(model, backend=machine.backend)
    return finished(config, ParallelModel([model], World(device=machine.device)), machine)


def finished(config: TrainConfig, model: ParallelModel, machine: Machine) -> TrainState:
    window = torch.zeros(2, 2, dtype=torch.float64, device=machine.device)
    state = TrainState(config, model, make_optimizer(model, config.optimizer), window, machine.device)
    if config.precision == "fp16":
        state.loss_scale = LossScale(config.loss_scale, machine.device)
    return state


def batch_of(number: int, config: TrainConfig, rows: int = ROWS) -> dict[str, Tensor]:
    """A batch on the host, with several documents in a row; some positions are not scored."""
    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(VOCAB, (rows, LENGTH + 1), generator=generator)
    labels = ids[:, 1:].clone()
    labels[0, :7] = -100
    starts = torch.rand(rows, LENGTH, generator=generator) < (0.0 if config.data.cross_documents else 0.15)
    places = torch.arange(LENGTH).expand(rows, LENGTH)
    return {
        "tokens": ids[:, :-1], "labels": labels, "documents": starts.cumsum(1),
        "positions": places - torch.where(starts, places, 0).cummax(1).values,
        "source_id": torch.arange(rows) % 2, "n": torch.arange(rows) + rows * number,
    }  # fmt: skip


def scored(batch: dict[str, Tensor]) -> float:
    return float((batch["labels"] >= 0).sum())


def bits(state: TrainState) -> dict[str, Tensor]:
    """Weights and states of the optimizer in this process, as they are now, on the CPU."""
    tensors = {**dict(state.model.named_parameters()), **state_tensors(state.model, state.optimizer)}
    return {name: local(t.detach()).cpu().clone() for name, t in tensors.items()}
