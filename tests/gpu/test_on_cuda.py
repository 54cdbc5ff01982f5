"""The ten checks on a CUDA device."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.checks import CHECKS, NotHere, no_waits
from tests.gpu.machines import Cuda
from tests.gpu.steps import CASES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("name", CHECKS)
def test_on_a_device(name: str) -> None:
    try:
        CHECKS[name](Cuda())
    except NotHere as reason:
        pytest.skip(str(reason))


def test_a_compiled_step_does_not_wait_either() -> None:
    some = ("bf16 adamw", "bf16 muon", "experts", "loss_chunk")
    no_waits(Cuda(), {name: CASES[name] for name in some}, compiled=True)
