"""FLOPs: a decoder's per token, a device's per second, and MFU, the share of the latter that training uses.

One formula for the trainer, `corpusmill estimate` and the benches, on the shapes of the parameters alone: a decoder on
the meta device, of any size, is enough.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from corpusmill.common.errors import UserError, nearest

MFU_FORMULA = (
    "tokens/s of one device x (6 x active weights of matrix products, 4 x frozen ones, + 6 x layers x heads x head_dim x"
    " sequence_length, with mla the mean of a key's and a value's size; of a local layer with window w its 2 w - w^2 / sequence_length; of attention to both sides twice as much)"
    " / its peak FLOP/s in dense bf16, whatever the precision"
)
Shapes = Mapping[str, Sequence[int]]  # of a decoder's parameters, by name
Windows = Mapping[int, int]  # of local layers, by number
NO_WINDOWS: Windows = MappingProxyType({})


def active_weights(shapes: Shapes, top_k: int = 0) -> float:
    """Weights of the matrix products that a token takes part in, the head among them (tied or not); no look-ups, norms or
    biases; of a stack of experts [E, out, in] the share `top_k` / E."""
    return sum(_active(shapes, top_k).values())


def flops_per_token(
    shapes: Shapes,
    length: int,
    top_k: int = 0,
    causal: bool = True,
    frozen: Collection[str] = (),
    windows: Windows = NO_WINDOWS,
) -> float:
    """FLOPs of forward and backward for one token of a sequence of `length`.

    6 x `active_weights`, and 12 x layers x heads x head_size x length for attention (where keys and values differ in size, their
    mean), half of it if `causal` (PaLM, Chowdhery et al. 2022, appendix B), and as much less as the mask has fewer ones where a layer has a window.
    Weights that are `frozen` count 4 x: they have no gradient, and their inputs have one (of the
    first layer too, here). Layers that predict further tokens count like the others, and the head once more for each. Boundaries of documents, recomputation and the norms of DoRA's rows are not taken into account.
    """
    active = _active(shapes, top_k)
    still = sum(active.get(name, 0.0) for name in frozen)
    return 6.0 * sum(active.values()) - 2.0 * still + 3.0 * _attention(shapes, length, causal, windows)


def recomputed_per_token(
    shapes: Shapes, length: int, top_k: int = 0, causal: bool = True, windows: Windows = NO_WINDOWS
) -> float:
    """FLOPs a token of the second forward pass of all layers with `full` activation checkpointing."""
    inside = re.compile(r"(layers|mtp)\.\d+\.(?!project)")
    layers = {name: shape for name, shape in shapes.items() if inside.match(name)}
    weights = sum(map(math.prod, _products(layers).values())) + sum(_of_experts(layers, top_k).values())
    return 2.0 * weights + _attention(shapes, length, causal, windows)


def _active(shapes: Shapes, top_k: int) -> dict[str, float]:
    """Of `active_weights`, those of each parameter; of a tied head the embedding's."""
    found = {name: float(math.prod(shape)) for name, shape in _products(shapes).items()}
    head = "head.weight" if "head.weight" in shapes else "embedding.weight"
    found[head] = float(math.prod(shapes[head])) * (1 + _further(shapes))
    return {**found, **_of_experts(shapes, top_k)}


def _further(shapes: Shapes) -> int:
    """How many further tokens are predicted (`corpusmill.train.model.mtp`): each passes the head too."""
    return sum(name.endswith(".project.weight") for name in shapes)


def _products(shapes: Shapes) -> Shapes:
    return {name: shape for name, shape in shapes.items() if len(shape) == 2 and "embedding" not in name}


def _of_experts(shapes: Shapes, top_k: int) -> dict[str, float]:
    return {name: math.prod(shape) * top_k / shape[0] for name, shape in shapes.items() if len(shape) == 3}


def _attention(shapes: Shapes, length: int, causal: bool, windows: Windows) -> float:
    """FLOPs of the forward pass: q k and the weighted sum of v, 2 for each of their products."""
    total = 0.0
    for name, shape in shapes.items():
        if name.endswith(("attention.q.weight", "attention.q_b.weight")):
            number = int(name.split(".")[1]) if name.startswith("layers.") else -1
            window = min(windows.get(number, length), length)
            of_values = shapes[f"{name.partition('attention')[0]}attention.o.weight"][1]
            # The first w positions attend to (w + 1) / 2 on average, the others to w.
            total += (shape[0] + of_values) / 2 * (2 * window - window * window / length)
    return (2.0 if causal else 4.0) * total


class Gpu(NamedTuple):
    """`memory` in GiB (data sheets write GB), `peak` in dense bf16 FLOP/s with fp32 accumulation, `watts`: its TDP; `fp8`:
    the peak in fp8, if it has that; `seen`: a pattern of the driver's name for it. `link` and `network`: bytes per second in
    one direction to GPUs of its node (NVLink, Infinity Fabric, else PCIe) and of others (as vendors' systems have it)."""

    name: str
    memory: float
    peak: float
    watts: float
    fp8: float | None = None
    seen: str = ""
    link: float = 32e9
    network: float = 12.5e9


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            "B200", 180, 2250e12, 1000, 4500e12, "B200", 900e9, 50e9
        ),  # NVIDIA HGX B200: 4.5 and 9 PFLOP/s with sparsity
        Gpu("H200", 140, 989e12, 700, 1979e12, "H200", 450e9, 50e9),  # NVIDIA H200 SXM; 141 GB are 140.4 GiB
        Gpu("H200-NVL", 140, 835.5e12, 600, 1671e12, "H200 NVL", 450e9, 25e9),  # the same
        Gpu("H100", 80, 989e12, 700, 1979e12, "H100( 80GB HBM3)?", 450e9, 50e9),  # NVIDIA H100 SXM
        Gpu("H100-PCIe", 80, 756e12, 350, 1513e12, "H100 PCIe", 64e9, 25e9),  # the same
        Gpu("H100-NVL", 94, 835.5e12, 400, 1671e12, "H100 NVL", 300e9, 25e9),  # the same
        Gpu("A100-80GB", 80, 312e12, 400, None, "A100[- ].*80GB.*", 300e9, 25e9),  # NVIDIA A100 SXM and PCIe
        Gpu("A100-40GB", 40, 312e12, 400, None, "A100[- ].*40GB", 300e9, 25e9),  # the same
        Gpu(
            "V100", 32, 125e12, 300, None, "V100-SXM2-.*", 150e9, 12.5e9
        ),  # NVIDIA V100 SXM2; in fp16, it has no bf16
        Gpu("L40S", 48, 362e12, 350, 733e12, "L40S"),  # NVIDIA L40S
        Gpu("L4", 24, 121e12, 72, 242e12, "L4"),  # NVIDIA L4
        Gpu("A10", 24, 125e12, 150, None, "A10"),  # NVIDIA A10 (the A10G of clouds is another)
        Gpu("RTX-4090", 24, 165e12, 450, 330e12, "RTX 4090"),  # NVIDIA Ada white paper
        Gpu("MI300X", 192, 1307e12, 750, 2615e12, "MI300X.*", 448e9, 50e9),  # AMD Instinct MI300X
    )
}


def gpu_named(name: str) -> Gpu:
    """A GPU of the table; raises `UserError` with the known names."""
    try:
        return GPUS[name]
    except KeyError:
        raise UserError(
            f"--gpu: '{name}' is not known{nearest(name, list(GPUS))} (known: {', '.join(GPUS)})"
        ) from None


def gpu_seen(device: str) -> Gpu | None:
    """The GPU with this name in the driver, such as `NVIDIA H100 80GB HBM3`; None if it is not in the table. Partitions
    (MIG), laptop and reduced versions are other GPUs."""
    return next((gpu for gpu in GPUS.values() if re.fullmatch(rf"(.* )?{gpu.seen}", device)), None)


def peak_flops(device: torch.device) -> dict[str, Any]:
    """The device's name, and its peak FLOP/s in dense bf16 and fp8, None where unknown."""
    if device.type != "cuda":
        return {"device": device.type, "bf16": None, "fp8": None}
    name = torch.cuda.get_device_name(device)
    gpu = gpu_seen(name)
    return {"device": name, "bf16": gpu and gpu.peak, "fp8": gpu and gpu.fp8}


def mfu(tokens_per_second: float, flops_per_token: float, device: torch.device) -> float | None:
    """Model FLOPs utilisation of one device by `MFU_FORMULA`; None if its peak is unknown."""
    peak = peak_flops(device)["bf16"]
    return tokens_per_second * flops_per_token / peak if peak else None
