"""What the checks run on: a CUDA device, the stand-in for one, or the CPU itself."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests.train.fake_cuda import CUDA, FakeCuda


class Machine:
    """The CPU. `backend`: of torch.compile."""

    device, backend = torch.device("cpu"), "aot_eager"

    def moved(self, value: Any) -> Any:
        """A tensor or module on the device."""
        return value.to(self.device)

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        """The waits of the host for the device within, known afterwards. A CPU has none."""
        yield []


class Fake(Machine):
    """`FakeCuda`, which has been entered."""

    device = CUDA

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def moved(self, value: Any) -> Any:
        return self.cuda.moved(value)

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        found, before = list[str](), len(self.cuda.waits)
        yield found
        found += self.cuda.waits[before:]


class Cuda(Machine):
    """The first CUDA device."""

    device, backend = CUDA, "inductor"

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no CUDA device")
        torch.cuda.set_device(self.device)

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        found = list[str]()
        torch.cuda.synchronize()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield found
            finally:
                torch.cuda.set_sync_debug_mode("default")
        # Another warning says that the mode is a prototype.
        synchronising = [w for w in seen if "called a synchronizing CUDA operation" in str(w.message)]
        found += [f"{w.message} in {w.filename}:{w.lineno}" for w in synchronising]
