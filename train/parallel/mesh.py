"""The processes of a run, one or as many as torchrun started, and their mesh: pipeline x replicate x shard x tensor, with
the shard axis split in two for experts. Processes that share sequences (context) are neighbours along replicate and shard."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.train.parallel.store import meet, under_torchrun
from corpusmill.train.parallel.watch import Watch

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from corpusmill.schemas.parallel import ParallelConfig
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.parallel.context import Context


@dataclass(frozen=True)
class World:
    """This process's rank among all, and its device.

    Tensor parallelism varies fastest along the ranks, then context, data, and pipeline stages: neighbours communicate most. The
    processes of one data rank read the same rows.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    watch: Watch | None = None  # of several processes, and under torchrun

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and logs."""
        return self.rank == 0

    @property
    def spare(self) -> bool:
        """Whether this process takes no part: their number fits neither batches nor layout."""
        return self.rank >= self.size

    @property
    def copies(self) -> int:
        """Processes that have the same rows."""
        return self.tensor * self.context * self.pipeline

    @property
    def data_size(self) -> int:
        return self.size // self.copies

    @property
    def data_rank(self) -> int:
        return self.rank // (self.tensor * self.context) % self.data_size

    def sum(self, *values: float) -> list[float]:
        """Sums over the data ranks, the same in every process. On the CPU, so that no device is waited for."""
        if self.size == 1:
            return [float(value) for value in values]
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return [value / self.copies for value in tensor.tolist()]

    def highest(self, value: float) -> float:
        """The highest of all processes' values."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return float(tensor)

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor summed over all processes, as float64 on the CPU."""
        result = tensor.detach().to("cpu", torch.float64, copy=True)
        if self.size > 1:
            dist.all_reduce(result)
        return result

    def agree(self, value: int) -> int:
        """The first process's number, in every process."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value)
        dist.broadcast(tensor, 0)
        return int(tensor)

    def share(self, data: bytes) -> bytes:
        """The first process's bytes, in every process."""
        if self.size == 1:
            return data
        count = self.agree(len(data))
        tensor = torch.tensor(list(data) if self.first else [0] * count, dtype=torch.uint8)
        dist.broadcast(tensor, 0)
        return bytes(tensor.tolist())

    def measuring(self, step: int) -> AbstractContextManager[None]:
        """What this process does at a step. On the CPU its watch measures how long it waits for the others in that."""
        if self.watch:
            self.watch.step = step
            if self.size > 1 and self.device.type == "cpu":
                return self.watch.measuring()
        return nullcontext()

    def close(self) -> None:
        if self.watch:
            self.watch.close()
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


class Flags:
    """Numbers that every process may raise, summed over all of them while they train: each call gives its own and returns the
    sums of the call before (in one process: of this one), so that no process waits for another."""

    def __init__(self, world: World) -> None:
        self._world, self._work, self._values = world, None, torch.zeros(0)

    def __call__(self, *values: float) -> list[float]:
        if self._world.size == 1:
            return list(values)
        found = self.finish() or [0.0] * len(values)
        self._values = torch.tensor(values, dtype=torch.float64)
        self._work = dist.all_reduce(self._values, async_op=True)
        return found

    def finish(self) -> list[float]:
        """The sums of the last call; none if there are none, or they were returned."""
        if self._work is not None:
            self._work.wait()
        found, self._work, self._values = self._values.tolist(), None, torch.zeros(0)
        return list(found)


def join(config: TrainConfig, active: int | None = None) -> World:
    """Join the processes that torchrun started (gloo on CPU, NCCL on CUDA), or be the only one. Only the first `active` of
    them take part; the others get a `World` that they are not in (`spare`).

    Raises `UserError` if there is no such device, or model or batch cannot be divided among the processes.
    """
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    parallel, active = config.parallel, active or size
    check_batches(config, data_processes(parallel, active))
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
    watch = None
    if (size > 1 or under_torchrun()) and not dist.is_initialized():
        meeting = meet(rank, size, config.watch.timeout)
        watch = Watch(rank, active, meeting, config.watch.timeout, Folder(config.output_url))
        if active > 1 and rank < active:
            dist.init_process_group(
                "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl", store=meeting.store, rank=rank, world_size=active,
                timeout=timedelta(seconds=watch.backstop), device_id=device if device.type == "cuda" else None,
            )  # fmt: skip
        watch.start()
    return World(rank, active, device, parallel.tensor, parallel.pipeline, parallel.context, watch)


def check_batches(config: TrainConfig, data_size: int) -> None:
    """Raise `UserError` if some batch of a run cannot be divided among its data ranks and the rounds of its pipeline."""
    data, parallel = config.data, config.parallel
    batches = [
        *(("batch_ramp", batch) for batch in data.batch_ramp.values()),
        ("global_batch", data.global_batch),
    ]
    for key, batch in batches:
        rows = data.micro_batch * data_size
        if batch % rows:
            fit = [m for m in range(1, data.micro_batch + 1) if batch % (m * data_size) == 0]
            advice = f"micro_batch to {fit[-1]}" if fit else f"it to {-(-batch // rows) * rows}"
            raise UserError(
                f"data.{key}: {batch} is not a multiple of micro_batch {data.micro_batch} x {data_size} processes:"
                f" set {advice}"
            )
        count = batch // rows  # micro-batches of a pipeline
        if parallel.pieces > parallel.pipeline and count % max(1, count // parallel.pipeline):
            raise UserError(
                f"parallel.schedule: {parallel.schedule} takes micro-batches in rounds of {parallel.pipeline}, and"
                f" there are {count}: set data.micro_batch so that data.{key} makes a multiple of {parallel.pipeline}"
                f" of them, or schedule to 1f1b"
            )


def data_processes(parallel: ParallelConfig, size: int) -> int:
    """The number of data ranks among `size` processes; raises `UserError` if the layout does not divide them."""
    inner = parallel.pipeline * parallel.tensor
    each = inner * parallel.context
    for what, processes, count in (
        (
            "parallel: pipeline x context x tensor"
            if parallel.context > 1
            else "parallel: pipeline x tensor",
            size,
            each,
        ),
        ("parallel: replicate x expert", size // inner, parallel.replicate * parallel.expert),
    ):
        if count > processes or processes % count:
            raise UserError(
                f"{what} = {count} does not divide {processes} process{'' if processes == 1 else 'es'}"
                f"{'' if processes == size else ' that share the data'}: start a multiple of {count}, or lower them"
            )
    return size // each


@dataclass(frozen=True)
class Mesh:
    """Several processes. `dense` has the axes pipeline, replicate, shard, tensor; `experts` (None without expert
    parallelism) pipeline, replicate, shard, expert, tensor, whose shard x expert is the shard of `dense`. `ends`: the
    first and the last pipeline stage, which both hold a tied embedding."""

    config: ParallelConfig
    dense: DeviceMesh
    experts: DeviceMesh | None
    ends: dist.ProcessGroup | None
    context: Context | None = (
        None  # the processes that share each sequence; for parameters they are data ranks
    )

    @property
    def stage(self) -> int:
        return self.dense.get_local_rank("pipeline")

    @property
    def stages(self) -> int:
        return self.config.pipeline

    @property
    def tensor_rank(self) -> int:
        return self.dense.get_local_rank("tensor")

    def groups(self) -> list[dist.ProcessGroup]:
        """All that this process is in, but the group of all processes."""
        meshes = [self.dense] if self.experts is None else [self.dense, self.experts]
        found = [group for mesh in meshes for group in mesh.get_all_groups()]
        more = [self.ends, None if self.context is None else self.context.group]
        return [*found, *(group for group in more if group is not None)]

    def data(self, expert: bool = False) -> DeviceMesh:
        """The mesh that a parameter (`expert`: a stack of experts) is sharded over: [shard], or [replicate, shard]."""
        mesh = self.experts if expert and self.experts is not None else self.dense
        return mesh["replicate", "shard"] if self.config.replicate > 1 else mesh["shard"]


def make_mesh(config: ParallelConfig, world: World) -> Mesh:
    """Collective: every process makes the same groups in the same order."""
    from torch.distributed.device_mesh import init_device_mesh

    device, data = world.device.type, world.data_size * config.context
    # Without sharding the shard axis is 1 long and all data-parallel processes are replicas.
    replicate = data if config.zero == 0 else config.replicate
    shard = data // replicate
    dense = init_device_mesh(
        device, (config.pipeline, replicate, shard, config.tensor),
        mesh_dim_names=("pipeline", "replicate", "shard", "tensor"),
    )  # fmt: skip
    experts = None
    if config.expert > 1:
        experts = init_device_mesh(
            device, (config.pipeline, replicate, shard // config.expert, config.expert, config.tensor),
            mesh_dim_names=("pipeline", "replicate", "shard", "expert", "tensor"),
        )  # fmt: skip
    ends = None
    if config.pipeline > 1:
        per_stage = world.size // config.pipeline
        pairs = [[place, place + world.size - per_stage] for place in range(per_stage)]
        groups = [dist.new_group(pair) for pair in pairs]
        ends = groups[world.rank % per_stage]
    context = None
    if config.context > 1:
        from corpusmill.train.parallel.context import Context
        from corpusmill.train.parallel.ring import RingContext

        apart = config.context * config.tensor  # ranks of one data rank in a stage
        first = world.rank // apart * apart
        for start in range(0, world.size, apart):
            for one in range(config.tensor):
                group = dist.new_group(list(range(start + one, start + apart, config.tensor)))
                if start == first and one == world.rank % config.tensor:
                    context = (RingContext if config.ring else Context)(group)
    mesh = Mesh(config, dense, experts, ends, context)
    if world.watch:  # else PyTorch's own: a part of `watch.timeout` or a multiple of it
        for group in mesh.groups():
            set_timeout(group, timedelta(seconds=world.watch.backstop))
    return mesh


def set_timeout(group: dist.ProcessGroup, timeout: timedelta) -> None:
    """After which a collective of the group is ended, on all of its devices."""
    if hasattr(group, "set_timeout"):
        group.set_timeout(timeout)
    else:  # an older PyTorch
        dist.distributed_c10d._set_pg_timeout(timeout, group)
