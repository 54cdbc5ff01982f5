"""What a config asks of a model beside its mathematics: the type of matrix products and attention (`autocast`; parameters,
sums of norms and losses stay float32 in every precision), and `adapt`, in the one order that works: fp8, checkpointing,
compile; before `fully_shard` or DistributedDataParallel, whose hooks must wrap all this.

Activation checkpointing (Chen et al. 2016): a layer keeps less, and computes it again in its backward pass.
- full: a layer keeps its input.
- selective: that and the outputs of matrix products and attention (Korthikanti et al. 2022), of reductions and
  of the router's choice; norms, activations, RoPE and casts are computed again, and sequences gathered again.
- budget: torch.compile keeps a given share of the activations, chosen to recompute least (a knapsack).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from corpusmill.common.errors import UserError
from corpusmill.train.batch import copies
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.layer import Layer
from corpusmill.train.precision.fp8 import use_fp8
from corpusmill.train.precision.offload import Offload

if TYPE_CHECKING:
    from corpusmill.schemas.parallel import MemoryConfig
    from corpusmill.schemas.training import TrainConfig

# Operations whose outputs `selective` keeps, as `namespace::name`; what an installation lacks is in no graph.
KEPT = frozenset(
    [f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_grouped_mm", "topk")]
    + [f"corpusmill::{name}" for name in ("one_by_one", "one_by_one_weights", "ring")]
    + [
        f"aten::_scaled_dot_product_{kind}"
        for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
    ]
    + ["torch_attn::_varlen_attn", "aten::_flash_attention_forward", "flex_attention"]
    + [f"_c10d_functional::{name}" for name in ("all_reduce", "reduce_scatter_tensor", "all_to_all_single")]
)


def apply_checkpointing(model: nn.Module, memory: MemoryConfig) -> None:
    """Give each layer of a model a `forward` that checkpoints; parameters' names and the module's hooks stay. Before
    compile and `fully_shard`."""
    if memory.checkpointing in ("none", "budget"):  # a budget is the compiler's
        return
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # dropout needs none
    if memory.checkpointing == "selective":
        options["context_fn"] = _selective
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.forward = _checkpointed(layer.forward, options)  # type: ignore[method-assign]


def _checkpointed(whole: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    from torch.utils.checkpoint import checkpoint

    def forward(*inputs: Any) -> Any:
        return checkpoint(whole, *inputs, **options)

    return forward


def _selective() -> Any:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    return create_selective_checkpoint_contexts(_policy)  # type: ignore[no-untyped-call]


def _policy(_context: Any, operation: Any, *_args: Any, **_kwargs: Any) -> Any:
    from torch.utils.checkpoint import CheckpointPolicy

    name = operation.name().split(".")[0]
    return CheckpointPolicy.MUST_SAVE if name in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def offloaded(memory: MemoryConfig, device: torch.device) -> AbstractContextManager[Any]:
    """The context of a forward pass: with `offload: activations`, saved tensors wait in the host's memory."""
    if memory.offload != "activations":
        return nullcontext()
    if device.type != "cuda":
        return torch.autograd.graph.save_on_cpu()
    return Offload(copies(device))


# Sharded weights are gathered in these too. fp8 is for the layers' products alone (`corpusmill.train.precision.fp8`); around
# them it is bfloat16.
TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
# Instructions for bf16: without them, a CPU is slower in it than in fp32.
BF16_CPU = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")


def automatic(device: torch.device) -> Literal["bf16", "fp32"]:
    """What `precision: auto` is in a new run on this device."""
    if device.type == "cuda":
        fast = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        known: dict[str, Any] = getattr(
            torch.cpu, "get_capabilities", dict
        )()  # not in every PyTorch that is supported
        fast = any(known.get(name) for name in BF16_CPU)
    return "bf16" if fast else "fp32"


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of a forward pass."""
    dtype = TYPES[config.precision]
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)


@contextmanager
def computing(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """The context of a forward pass of training: `autocast` and `offloaded`."""
    with autocast(config, device), offloaded(config.memory, device):
        yield


VARIANTS = 64  # of a layer's code: training or not, documents or not, lengths of a ramp, kinds of layers


def adapt(model: nn.Module, config: TrainConfig, device: torch.device) -> None:
    """Prepare a model in place, and PyTorch for it. Raises `UserError` for what this device cannot do."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
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
    """torch.compile each layer as a whole, equal ones sharing their code; the loss with the head, whose float32 logits
    are then never written; and what is small, but many kernels: embeddings, rotary angles, last norm. `budget`: of activation memory."""
    import torch._dynamo
    import torch._functorch.config

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    torch._functorch.config.activation_memory_budget = 1.0 if budget is None else budget
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.compile(fullgraph=True, backend=backend)
        elif isinstance(layer, Decoder):
            layer.rotation = torch.compile(layer.rotation, fullgraph=True, backend=backend)  # type: ignore[method-assign]
            layer.last_norm = torch.compile(layer.last_norm, fullgraph=True, backend=backend)  # type: ignore[method-assign]
            if layer.split.size == 1:
                layer.embed = torch.compile(layer.embed, fullgraph=True, backend=backend)  # type: ignore[method-assign]
                layer.score = torch.compile(layer.score, backend=backend)


def uncompiled() -> AbstractContextManager[Any]:
    """A context in which compiled layers run eagerly: a shape that is not the training's is not worth compiling for."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def offload_policy(memory: MemoryConfig) -> Any:
    """What `fully_shard(..., offload_policy=...)` takes."""
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

    if memory.offload != "optimizer":
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
