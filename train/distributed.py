"""The processes of a run: one, or as many as torchrun started. Nothing else in `train` asks for the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from schemas.errors import UserError

if TYPE_CHECKING:
    from schemas.training import TrainConfig


@dataclass(frozen=True)
class World:
    """This process's place among the data-parallel ones, and its device."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Sums over all processes; the same numbers everywhere. Through the CPU: no device is waited for."""
        if self.size == 1:
            return [float(value) for value in values]
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return list(tensor.tolist())

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor summed over all processes, as float64 on the CPU."""
        result = tensor.detach().to("cpu", torch.float64, copy=True)
        if self.size > 1:
            dist.all_reduce(result)
        return result

    def agree(self, value: int) -> int:
        """The first process's number, in every process."""
        return int(self.sum(value if self.first else 0)[0])

    def share(self, data: bytes) -> bytes:
        """The first process's bytes, in every process."""
        if self.size == 1:
            return data
        count = self.agree(len(data))
        tensor = torch.tensor(list(data) if self.first else [0] * count, dtype=torch.uint8)
        dist.broadcast(tensor, 0)
        return bytes(tensor.tolist())

    def close(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def all_sum(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of all processes' tensors, on the device; the tensor itself if there is one process."""
    if dist.is_initialized():
        tensor = tensor.clone()
        dist.all_reduce(tensor)
    return tensor


def join(config: TrainConfig) -> World:
    """Join the processes that torchrun started (gloo on CPU, NCCL on CUDA), or be the only one.

    Raises `UserError` if there is no such device, or the batch cannot be dealt to the processes.
    """
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    micro = config.data.micro_batch
    for key, batch in (
        *(("batch_ramp", batch) for batch in config.data.batch_ramp.values()),
        ("global_batch", config.data.global_batch),
    ):
        if batch % (micro * size):
            fit = [m for m in range(1, micro + 1) if batch % (m * size) == 0]
            advice = (
                f"micro_batch to {fit[-1]}" if fit else f"it to {-(-batch // (micro * size)) * micro * size}"
            )
            raise UserError(
                f"data.{key}: {batch} is not a multiple of micro_batch {micro} x {size} processes: set {advice}"
            )
    cuda = torch.cuda.is_available()
    if config.device == "cuda" and not cuda:
        raise UserError("device: cuda, but PyTorch sees no CUDA device; set device to cpu or auto")
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.device == "cpu" or not cuda:
        device = torch.device("cpu")
    else:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if size > 1:
        dist.init_process_group("gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl")
    return World(rank, size, device)
