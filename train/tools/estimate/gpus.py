"""What GPUs have: memory, peak speed, power; each from its maker's data sheet, without sparsity. MFU asks here too."""

from __future__ import annotations

import re
from typing import NamedTuple

from corpusmill.common.errors import UserError, nearest


class Gpu(NamedTuple):
    """`memory` in GiB (makers say GB for it), `peak` in dense bf16 FLOP/s with fp32 accumulation, `watts` its TDP; `fp8`
    the same in fp8, None where it has none; `seen`: a pattern of the name that the driver gives it."""

    name: str
    memory: float
    peak: float
    watts: float
    fp8: float | None = None
    seen: str = ""


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("B200", 180, 2250e12, 1000, 4500e12, "B200"),  # NVIDIA HGX B200: 4.5 and 9 PFLOP/s with sparsity
        Gpu("H200", 140, 989e12, 700, 1979e12, "H200"),  # NVIDIA H200 SXM; 141 GB are 140.4 GiB
        Gpu("H200-NVL", 140, 835.5e12, 600, 1671e12, "H200 NVL"),  # the same
        Gpu("H100", 80, 989e12, 700, 1979e12, "H100( 80GB HBM3)?"),  # NVIDIA H100 SXM
        Gpu("H100-PCIe", 80, 756e12, 350, 1513e12, "H100 PCIe"),  # the same
        Gpu("H100-NVL", 94, 835.5e12, 400, 1671e12, "H100 NVL"),  # the same
        Gpu(
            "A100-80GB", 80, 312e12, 400, None, "A100[- ].*80GB.*"
        ),  # NVIDIA A100; SXM and PCIe have one peak
        Gpu("A100-40GB", 40, 312e12, 400, None, "A100[- ].*40GB"),  # the same
        Gpu("V100", 32, 125e12, 300, None, "V100-SXM2-.*"),  # NVIDIA V100 SXM2; in fp16, it has no bf16
        Gpu("L40S", 48, 362e12, 350, 733e12, "L40S"),  # NVIDIA L40S
        Gpu("L4", 24, 121e12, 72, 242e12, "L4"),  # NVIDIA L4
        Gpu("A10", 24, 125e12, 150, None, "A10"),  # NVIDIA A10 (the A10G of clouds is another)
        Gpu("RTX-4090", 24, 165e12, 450, 330e12, "RTX 4090"),  # NVIDIA Ada white paper
        Gpu("MI300X", 192, 1307e12, 750, 2615e12, "MI300X.*"),  # AMD Instinct MI300X
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


def gpu_seen(device: str) -> Gpu | None:
    """The GPU that the driver calls so, such as `NVIDIA H100 80GB HBM3`; None if it is not in the table. Parts of one
    (MIG) and laptop or cut-down kin of one are not it."""
    return next((gpu for gpu in GPUS.values() if re.fullmatch(rf"(.* )?{gpu.seen}", device)), None)
