"""What a config asks of a model beside its mathematics: the type of matrix products and attention (`autocast`; parameters,
sums of norms and losses stay float32 in every precision), and `adapt`, in the one order that works: fp8, checkpointing,
compile; before `fully_shard` or DistributedDataParallel, which put their hooks outside of all this.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from corpusmill.common.errors import UserError
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.layer import Layer
from corpusmill.train.precision.activation_checkpointing import apply_checkpointing, offloaded
from corpusmill.train.precision.fp8 import use_fp8

if TYPE_CHECKING:
    from corpusmill.schemas.parallel import MemoryConfig
    from corpusmill.schemas.training import TrainConfig

# Sharded weights are gathered in these too. fp8 is for the layers' products alone (`corpusmill.train.precision.fp8`); around
# them it is bfloat16.
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of a forward pass."""
    dtype = TYPES.get(config.precision)
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)


@contextmanager
def computing(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Around a forward pass of training: `autocast`, and what is kept for the backward pass goes where it is to wait."""
    with autocast(config, device), offloaded(config.memory, device):
        yield


VARIANTS = 64  # of a layer's code: training or not, documents or not, lengths of a ramp, kinds of layers


def adapt(model: nn.Module, config: TrainConfig, device: torch.device) -> None:
    """Prepare a model in place. Raises `UserError` for what this device cannot do."""
    if config.precision == "fp8":
        use_fp8(model, device)
    apply_checkpointing(model, config.memory)
    compiling = compiles(config, device)
    if config.memory.checkpointing == "budget" and not compiling:
        raise UserError(
            f"memory.checkpointing: budget is kept by torch.compile, which is off on {device.type}: set compile to true,"
            " or memory.checkpointing to selective"
        )
    if compiling:
        compile_layers(model, config.memory.budget)


def compiles(config: TrainConfig, device: torch.device) -> bool:
    """Whether layers are compiled; by default on CUDA alone."""
    return device.type == "cuda" if config.compile is None else config.compile


def compile_layers(model: nn.Module, budget: float | None = None, backend: str = "inductor") -> None:
    """torch.compile each layer as a whole, equal ones sharing their code, and the loss with the head, whose float32 logits
    are then never written. `budget`: of activation memory."""
    import torch._dynamo
    import torch._functorch.config

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    torch._functorch.config.activation_memory_budget = 1.0 if budget is None else budget
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.compile(fullgraph=True, backend=backend)
        elif isinstance(layer, Decoder) and layer.split.size == 1:
            layer.score = torch.compile(layer.score, backend=backend)


def uncompiled() -> AbstractContextManager[Any]:
    """Compiled layers run as they are written: another shape than the training's is not worth compiling for."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def offload_policy(memory: MemoryConfig) -> Any:
    """What `fully_shard(..., offload_policy=...)` takes."""
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

    if memory.offload != "optimizer":
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
