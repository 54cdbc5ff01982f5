"""What GPUs have: memory, peak speed, power; each from its maker's data sheet."""

from __future__ import annotations

from typing import NamedTuple

from schemas.errors import UserError, nearest
from train.metrics import PEAK_BF16


class Gpu(NamedTuple):
    """`memory` in GiB (makers say GB for it), `peak` in dense bf16 FLOP/s without sparsity, `watts` its TDP."""

    name: str
    memory: float
    peak: float
    watts: float


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("B200", 180, 2250e12, 1000),  # NVIDIA HGX B200 data sheet: 4.5 PFLOP/s with sparsity
        Gpu("H200", 140, PEAK_BF16["H200"], 700),  # NVIDIA H200 SXM data sheet; 141 GB are 140.4 GiB
        Gpu("H100", 80, PEAK_BF16["H100"], 700),  # NVIDIA H100 SXM data sheet
        Gpu("H100-PCIe", 80, 756e12, 350),  # the same
        Gpu("A100-80GB", 80, PEAK_BF16["A100"], 400),  # NVIDIA A100 SXM data sheet
        Gpu("A100-40GB", 40, PEAK_BF16["A100"], 400),  # the same
        Gpu("V100", 32, 125e12, 300),  # NVIDIA V100 SXM2 data sheet; fp16, it has no bf16
        Gpu("L40S", 48, PEAK_BF16["L40S"], 350),  # NVIDIA L40S data sheet
        Gpu("RTX-4090", 24, PEAK_BF16["RTX 4090"], 450),  # NVIDIA Ada white paper, with fp32 accumulation
        Gpu("MI300X", 192, 1307e12, 750),  # AMD Instinct MI300X data sheet
    )
}


def gpu_named(name: str) -> Gpu:
    """A GPU of the table; raises `UserError` naming those there are."""
    try:
        return GPUS[name]
    except KeyError:
        raise UserError(
            f"--gpu: '{name}' is not known{nearest(name, list(GPUS))} (known: {', '.join(GPUS)})"
        ) from None
