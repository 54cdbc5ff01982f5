"""The table of GPUs: what drivers call them finds the right row, and nothing else does."""

from __future__ import annotations

import pytest

from corpusmill.train.model.flops import GPUS, gpu_seen

NAMES = {
    "NVIDIA B200": "B200", "NVIDIA H200": "H200", "NVIDIA H200 NVL": "H200-NVL", "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100-PCIe", "NVIDIA H100 NVL": "H100-NVL", "NVIDIA A100-SXM4-80GB": "A100-80GB",
    "NVIDIA A100 80GB PCIe": "A100-80GB", "NVIDIA A100-SXM4-40GB": "A100-40GB", "NVIDIA A100-PCIE-40GB": "A100-40GB",
    "Tesla V100-SXM2-32GB": "V100", "NVIDIA L40S": "L40S", "NVIDIA L4": "L4", "NVIDIA A10": "A10",
    "NVIDIA GeForce RTX 4090": "RTX-4090", "AMD Instinct MI300X": "MI300X",
}  # fmt: skip
OTHERS = (
    "NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA GH200 480GB",
    "NVIDIA GB200", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H20", "Tesla T4", "",
)  # fmt: skip


@pytest.mark.parametrize("device", NAMES)
def test_a_driver_s_name_finds_its_row(device: str) -> None:
    found = gpu_seen(device)
    assert found and found.name == NAMES[device]


@pytest.mark.parametrize("device", OTHERS)
def test_kin_and_slices_have_no_peak(device: str) -> None:
    assert gpu_seen(device) is None


def test_fp8_is_about_twice_bf16_where_there_is_fp8() -> None:
    assert set(NAMES.values()) == set(GPUS)
    for gpu in GPUS.values():
        assert gpu.fp8 is None or gpu.fp8 / gpu.peak == pytest.approx(2, rel=0.02)
