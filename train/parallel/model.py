"""A decoder as one process holds it, in any layout: forward, backward, gradients, norms and values of its parts; and
`build`, from a config to this process's part."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from corpusmill.train.model.adapters import held, with_adapters
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.initialise import first_values
from corpusmill.train.parallel.fsdp import release, shard, sync_gradients
from corpusmill.train.parallel.mesh import Mesh, World, make_mesh
from corpusmill.train.parallel.pipeline import Objective, Pipeline, Rows, keep
from corpusmill.train.parallel.sharded_parameter import (
    Cuts,
    Part,
    combined,
    local,
    norms,
    part_of,
    replicas,
)
from corpusmill.train.parallel.tensor import split_model
from corpusmill.train.precision.adapt import TYPES, adapt, computing, offload_policy, uncompiled

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch

BUCKET = 1 << 25  # elements that one all-reduce sends


class ParallelModel:
    """`parts`: the pieces of the decoder in this process (one without a pipeline), whose parameters are whole, cut
    (`cuts`) or DTensors. Names are those of the whole decoder. Without `mesh`, this process has the whole model. `frozen`: it is never
    trained."""

    def __init__(
        self,
        parts: list[Decoder],
        world: World = World(),
        mesh: Mesh | None = None,
        cuts: Cuts | None = None,
        frozen: bool = False,
    ) -> None:
        self.parts, self.world, self.mesh, self.cuts = parts, world, mesh, cuts or {}
        self.config, self.vocab_size = parts[0].config, parts[0].vocab_size
        with torch.device("meta"):
            self.whole = with_adapters(Decoder(self.config, self.vocab_size), parts[0].adapter)
        holders = mesh.dense.get_group("replicate") if mesh and mesh.config.zero == 0 else None
        for name, parameter in self.named_parameters():
            parameter.cuts = self.cuts.get(name, ())  # type: ignore[attr-defined]  # `corpusmill.train.parallel.sharded_parameter` asks
            parameter.holders = holders  # type: ignore[attr-defined]  # and `corpusmill.train.parallel.deal`
        self.pipeline = Pipeline(parts, mesh, self.world.device) if mesh and mesh.stages > 1 else None
        self._module: nn.Module = parts[0]
        self.plain = mesh is not None and mesh.config.zero == 0 and mesh.stages == mesh.config.tensor == 1
        if self.plain and not frozen:
            ids = None if self.world.device.type == "cpu" else [self.world.device]
            # Gradients are views of the buckets: no second copy of them, none to be made. Buffers (the experts' biases)
            # are moved by sums over all processes, and equal without being sent; the second name is that before PyTorch 2.13.
            names = inspect.signature(DistributedDataParallel.__init__).parameters
            sync = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
            options: dict[str, Any] = {"gradient_as_bucket_view": True, sync: False}
            self._module = DistributedDataParallel(parts[0], device_ids=ids, **options)
            self._warm_up()

    def _warm_up(self) -> None:
        """A warm-up backward pass. DistributedDataParallel orders its buckets by the first backward pass that it sees,
        and another order of the buckets is another order of summation: without it, the first step of a resumed run would
        differ from that of an unbroken one. Not compiled: compiled layers would specialise to its shape."""
        tokens = torch.zeros(1, 2, dtype=torch.int64, device=self.world.device)
        with uncompiled():
            self._module(tokens, tokens).sum().backward()
        for part in self.parts:
            part.zero_grad(set_to_none=True)
            part.statistics.take()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for part in self.parts:
            yield from part.named_parameters()

    def parameters(self) -> list[nn.Parameter]:
        return [parameter for _, parameter in self.named_parameters()]

    def trained(self) -> list[nn.Parameter]:
        """Those that training changes: all, or an adapter's alone."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters, and the experts' biases, on which the model's outputs depend too."""
        return {name: value for part in self.parts for name, value in part.state_dict().items()}

    def train(self, mode: bool = True) -> None:
        for part in self.parts:
            part.train(mode)

    def collect_activations(self, on: bool) -> None:
        """Whether training passes also sum what `activation_rms` reads."""
        for part in self.parts:
            part.statistics.collect_activations = on

    @property
    def parameter_count(self) -> int:
        """Of the whole model."""
        return self.whole.parameter_count

    @property
    def trained_line(self) -> str:
        """Which share of the whole model an adapter is; empty without one."""
        if self.parts[0].adapter is None:
            return ""
        trained = sum(parameter.numel() for parameter in self.whole.parameters() if parameter.requires_grad)
        share = trained / self.parameter_count
        return f"adapter: {trained:,} of {self.parameter_count:,} parameters are trained ({share:.2%}){held(self.whole)}"

    @property
    def counts(self) -> bool:
        """Whether this process, of those that have the same rows, is the one whose losses are counted."""
        at_end = self.pipeline is None or self.pipeline.last
        return at_end and (self.mesh is None or self.mesh.tensor_rank == 0)

    def backward(
        self,
        batches: list[Rows],
        weight: Tensor | float,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
        objective: Objective | None = None,
    ) -> list[Tensor]:
        """Accumulate the gradients of `weight` x the sum of the losses of micro-batches, or of what `objective` makes of each; return
        those losses [B, T] each, none in the stages before the last. `context`: of each forward (a pipeline's parts have it already)."""
        if self.pipeline:
            return self.pipeline.backward(batches, weight, objective)
        # DistributedDataParallel takes the mean of the processes' gradients; we want their sum.
        weight = weight * self.world.size if self.plain else weight
        losses = []
        for number, batch in enumerate(batches, 1):
            last = number == len(batches)
            if self.mesh is not None:
                sync_gradients(self._module, self.mesh.config.zero, last)
            ddp = self._module if isinstance(self._module, DistributedDataParallel) else None
            with nullcontext() if ddp is None or last else ddp.no_sync():
                with context():
                    loss = self._module(**batch)
                ((loss.sum() if objective is None else objective(loss, number - 1)) * weight).backward()
            losses.append(loss.detach())
        return losses

    def own_part(self, batch: Batch) -> Batch:
        """Of a data rank's batch what this process computes: a part of each sequence where processes share them."""
        return batch if self.mesh is None or self.mesh.context is None else self.mesh.context.cut(batch)

    def forget_gathered(self) -> None:
        """Gathered parameters are gathered again at their next use: the parts that they are of were changed from outside."""
        if self.mesh is not None and self.mesh.config.zero:
            for part in self.parts:
                release(part)

    def losses(self, batch: Rows) -> Tensor:
        """Losses [B, T] of rows, without dropout, in every process that has them; call it without gradients."""
        return self.pipeline.forward(batch) if self.pipeline else self.parts[0](**batch)

    def complete(self) -> None:
        """After the last backward of a step, add up gradients until each is that of the run's loss.

        What tensor parallelism leaves whole has a summand in each process; a tied embedding has one in the first and one
        in the last stage; without sharding each data rank has one (DistributedDataParallel has added those up already).
        """
        mesh = self.mesh
        if mesh is None:
            return
        grads = {name: local(p.grad) for name, p in self.named_parameters() if p.grad is not None}
        if mesh.config.tensor > 1:
            whole = [g for n, g in grads.items() if all(cut.axis != "tensor" for cut in self.cuts.get(n, ()))]
            all_reduce(whole, mesh.dense.get_group("tensor"))
        if not self.plain and mesh.config.zero == 0 and mesh.dense.size(1) > 1:
            all_reduce(list(grads.values()), mesh.dense.get_group("replicate"))
        tied = grads.get("embedding.weight") if self.config.tie_embeddings else None
        if tied is not None and mesh.ends is not None and mesh.stage in (0, mesh.stages - 1):
            all_reduce([tied], mesh.ends)

    def norm(self, tensors: list[Tensor]) -> Tensor:
        """Euclidean norm over all processes of tensors like the `trained` parameters, in their order."""
        return self.combined(norms(tensors))

    def combined(self, found: list[list[Tensor]]) -> Tensor:
        """`norm` of tensors whose `norms` in this process are known."""
        counts = [self.replicas(name, p) for name, p in self.named_parameters() if p.requires_grad]
        return combined(found, counts, None if self.mesh is None else dist.group.WORLD)

    def replicas(self, name: str, parameter: Tensor) -> int:
        """How many processes hold the same part of a parameter."""
        if self.mesh is None:
            return 1
        processes = self.world.size // self.mesh.stages
        if name == "embedding.weight" and self.config.tie_embeddings and self.mesh.stages > 1:
            processes *= 2  # in the first and in the last stage
        return replicas(parameter, self.cuts.get(name, ()), processes)

    def clip(self, highest: float | None, value: float | None = None) -> Tensor:
        """Clamp each element of the gradients to `value`, then scale them down to a norm of `highest`; the norm before both."""
        grads = [p.grad for p in self.parameters() if p.grad is not None]
        here = [local(g) for g in grads]
        found = now = self.norm(grads)
        if value is not None:
            torch._foreach_clamp_min_(here, -value)
            torch._foreach_clamp_max_(here, value)
            now = self.norm(grads) if highest is not None else found
        if highest is not None:
            torch._foreach_mul_(here, (highest / (now + 1e-6)).clamp(max=1.0))
        return found

    def part(self, name: str, tensor: Any) -> Part:
        """Where the local elements of a parameter, or of a tensor like it, lie in the whole."""
        return part_of(tensor, self.cuts.get(name, ()))

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Give the local parts of parameters their first values."""
        for name, parameter in self.named_parameters():
            here, part = local(parameter), self.part(name, parameter)
            if here.numel():
                how = seed, self.config.layers, self.vocab_size, here.device, self.config.width_ratio
                here.copy_(first_values(name, part.shape, part.slices(here.shape), *how))
        for piece in self.parts:
            for buffer in piece.buffers():
                buffer.zero_()

    @torch.no_grad()
    def load_whole(self, whole: dict[str, Tensor]) -> None:
        """Take the values of a whole model's parameters and buffers, by name."""
        for name, value in self.state_dict().items():
            here = local(value)
            here.copy_(whole[name][self.part(name, value).slices(here.shape)])

    def take_sums(self) -> dict[str, Tensor]:
        """The sums of `Statistics` over all processes, which are then reset."""
        moe, device = self.config.moe, self.world.device
        names = ["z_loss"] if self.config.z_loss else []
        names += ["balance_loss", "router_z_loss"] if moe else []
        names += ["loss_mtp"] if self.config.mtp else []
        sums = {name: torch.zeros((), dtype=torch.float64, device=device) for name in names}
        if self.parts[0].statistics.collect_activations:
            sums["activation"] = torch.zeros(2, dtype=torch.float64, device=device)
        if moe:
            sums["load"] = torch.zeros(self.config.layers, moe.experts, dtype=torch.int64, device=device)
        for part in self.parts:
            for name, value in part.statistics.take().items():
                sums[name] = sums[name] + value
        if self.mesh is not None:
            load = sums.pop("load", None)
            if sums:  # in one message
                flat = torch.cat([value.flatten() for value in sums.values()])
                dist.all_reduce(flat)
                parts = torch.split(flat / self.world.tensor, [value.numel() for value in sums.values()])
                sums = {name: part.view_as(sums[name]) for name, part in zip(sums, parts, strict=True)}
            if load is not None:
                dist.all_reduce(load)
                sums["load"] = load // self.world.tensor
        return sums


def all_reduce(tensors: list[Tensor], group: dist.ProcessGroup) -> None:
    """Sum each tensor over a group, in place, many in one message."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        bucket: list[Tensor] = []
        same = [tensor for tensor in tensors if tensor.dtype == dtype]
        for number, tensor in enumerate(same, 1):
            bucket.append(tensor)
            if number == len(same) or sum(t.numel() for t in bucket) >= BUCKET:
                flat = torch.cat([t.flatten() for t in bucket])
                dist.all_reduce(flat, group=group)
                for t, part in zip(bucket, torch.split(flat, [t.numel() for t in bucket]), strict=True):
                    t.copy_(part.view_as(t))
                bucket = []


def build(config: TrainConfig, vocab_size: int, world: World, frozen: bool = False) -> ParallelModel:
    """This process's part of a config's decoder, with its first values; collective. `frozen`: without gradients."""
    summed = config.objective is None and config.reinforcement is None
    if world.size == 1:
        with world.device:  # a GPU computes the first values in parallel, and the same ones
            whole = with_adapters(Decoder(config.model, vocab_size, config.seed), config.adapter, config.seed)
        adapt(whole, config, world.device)
        whole.summed = summed
        if frozen:
            whole.requires_grad_(False)
        return ParallelModel([whole], world)
    mesh, parallel = make_mesh(config.parallel, world), config.parallel
    parts: list[Decoder] = []
    cuts: Cuts = {}
    for piece in range(mesh.stage, parallel.pieces, parallel.pipeline):
        with torch.device("meta"):
            part = keep(Decoder(config.model, vocab_size), piece, parallel.pieces)
            with_adapters(part, config.adapter)
            cuts.update(split_model(part, mesh))
        adapt(part, config, world.device)
        part.summed = summed
        if frozen:
            part.requires_grad_(False)
        if parallel.zero:
            shard(part, mesh, TYPES[config.precision], offload_policy(config.memory))
        part.to_empty(device="cpu" if config.memory.offload == "optimizer" else world.device)
        for buffer in part.buffers():  # which are never offloaded
            buffer.data = buffer.data.to(world.device)
        if parallel.pipeline > 1:  # whose schedule calls it
            part.summed = False  # gradients of the head would wait for the backward pass of each micro-batch
            part.forward = computing(config, world.device)(part.forward)  # type: ignore[method-assign]
        parts.append(part)
    model = ParallelModel(parts, world, mesh, cuts, frozen)
    model.initialise(config.seed)
    return model
