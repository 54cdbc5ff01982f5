"""The ten checks where there is no CUDA device: on the stand-in for one, or on the CPU where it has what they are about."""

from __future__ import annotations

import pytest
import torch

from tests.forks import launch
from tests.gpu.checks import CHECKS, ON_CPU, no_waits
from tests.gpu.machines import Fake, Machine
from tests.gpu.ranks import LAYOUTS
from tests.gpu.steps import CASES
from tests.train.fake_cuda import FakeCuda
from tests.train.precision.products import decoded_products  # noqa: F401 (a fixture)

FEW = ("adamw", "bf16 muon")  # of the cases of which tests/train/test_no_waits.py has all


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_there_are_ten() -> None:
    assert len(CHECKS) == 10 and set(ON_CPU) < set(CHECKS)


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in ON_CPU])
def test_on_the_fake_device(name: str) -> None:
    with FakeCuda() as cuda:
        if CHECKS[name] is no_waits:
            no_waits(Fake(cuda), {few: CASES[few] for few in FEW})
        else:
            CHECKS[name](Fake(cuda))


@pytest.mark.parametrize("name", [name for name in ON_CPU if name != "two ranks"])
@pytest.mark.usefixtures("decoded_products")
def test_on_the_cpu(name: str) -> None:
    CHECKS[name](Machine())


def test_two_ranks_on_the_cpu() -> None:
    done = launch(2, "tests.gpu.ranks", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        [kind, *name.split(), "agrees"] for kind in ("adamw", "muon") for name in LAYOUTS
    ]
