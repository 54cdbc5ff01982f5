"""A decoder as one process holds it, in any layout: forward, backward, norms and values of the parts that are here; and
`build`, from a config to this process's part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.initialise import first_values
from corpusmill.train.parallel.fsdp import shard, sync_gradients
from corpusmill.train.parallel.gradients import complete
from corpusmill.train.parallel.mesh import Mesh, World, make_mesh
from corpusmill.train.parallel.pipeline import Pipeline, Rows, keep
from corpusmill.train.parallel.sharded_parameter import Cuts, Part, local, part_of, replicas, total_norm
from corpusmill.train.parallel.tensor import split_model
from corpusmill.train.precision.adapt import TYPES, adapt, computing, offload_policy, uncompiled

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from corpusmill.schemas.training import TrainConfig


class ParallelModel:
    """`parts`: the pieces of the decoder that are here (one without a pipeline), whose parameters are whole, cut (`cuts`)
    or DTensors. Names are those of the whole decoder. Without `mesh`, everything is here, or in copies of it."""

    def __init__(
        self,
        parts: list[Decoder],
        world: World | None = None,
        mesh: Mesh | None = None,
        cuts: Cuts | None = None,
    ) -> None:
        self.parts, self.world, self.mesh, self.cuts = parts, world or World(), mesh, cuts or {}
        self.config, self.vocab_size = parts[0].config, parts[0].vocab_size
        with torch.device("meta"):
            self.whole = Decoder(self.config, self.vocab_size)
        for name, parameter in self.named_parameters():
            parameter.cuts = self.cuts.get(name, ())  # type: ignore[attr-defined]  # `corpusmill.train.parallel.sharded_parameter` asks
        self.pipeline = Pipeline(parts, mesh, self.world.device) if mesh and mesh.stages > 1 else None
        self._module: nn.Module = parts[0]
        self.plain = mesh is not None and mesh.config.zero == 0 and mesh.stages == mesh.config.tensor == 1
        if self.plain:
            ids = None if self.world.device.type == "cpu" else [self.world.device]
            self._module = DistributedDataParallel(parts[0], device_ids=ids)
            self._warm_up()

    def _warm_up(self) -> None:
        """A warm-up backward pass: by the first that it sees DistributedDataParallel orders its buckets, and what lies
        elsewhere in them is added up in another order. Without it the first step of a resumed run would not be that of
        the run. Not compiled: its shape would be the first that compiled layers meet."""
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

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters, and what else decides the model's answers: the experts' biases."""
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
    def counts(self) -> bool:
        """Whether this process is the one, of those that have the same rows, whose losses are counted."""
        at_end = self.pipeline is None or self.pipeline.last
        return at_end and (self.mesh is None or self.mesh.tensor_rank == 0)

    def backward(
        self,
        batches: list[Rows],
        weight: Tensor | float,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> list[Tensor]:
        """Gradients of `weight` x the sum of the losses of micro-batches, added to what is there; their losses [B, T],
        none in the stages before the last. `context`: of each forward (a pipeline's parts have it already)."""
        if self.pipeline:
            return self.pipeline.backward(batches, weight)
        # DistributedDataParallel takes the mean of the processes' gradients; we want their sum.
        weight = weight * self.world.data_size if self.plain else weight
        losses = []
        for number, batch in enumerate(batches, 1):
            last = number == len(batches)
            if self.mesh is not None:
                sync_gradients(self._module, self.mesh.config.zero, last)
            with (
                self._module.no_sync()
                if isinstance(self._module, DistributedDataParallel) and not last
                else nullcontext()
            ):
                with context():
                    loss = self._module(**batch)
                (loss.sum() * weight).backward()
            losses.append(loss.detach())
        return losses

    def losses(self, batch: Rows) -> Tensor:
        """Losses [B, T] of rows, without dropout, in every process that has them; call it without gradients."""
        return self.pipeline.forward(batch) if self.pipeline else self.parts[0](**batch)

    def complete(self) -> None:
        """After a step's last backward: every gradient that of the run."""
        if self.mesh is not None:
            tied = self.config.tie_embeddings and self.mesh.stages > 1
            complete(dict(self.named_parameters()), self.cuts, self.mesh, tied, self.plain)

    def norm(self, tensors: list[Tensor]) -> Tensor:
        """Euclidean norm over all processes of tensors like the parameters, in their order."""
        counts = [self.replicas(name, parameter) for name, parameter in self.named_parameters()]
        return total_norm(tensors, counts, None if self.mesh is None else dist.group.WORLD)

    def replicas(self, name: str, parameter: Tensor) -> int:
        """How many processes have the same part of a parameter."""
        if self.mesh is None:
            return 1
        processes = self.world.size // self.mesh.stages
        if name == "embedding.weight" and self.config.tie_embeddings and self.mesh.stages > 1:
            processes *= 2  # in the first and in the last stage
        return replicas(parameter, self.cuts.get(name, ()), processes)

    def clip(self, highest: float | None) -> Tensor:
        """Scale the gradients down to a norm of `highest`; the norm before."""
        grads = [p.grad for p in self.parameters() if p.grad is not None]
        found = self.norm(grads)
        if highest is not None:
            torch._foreach_mul_([local(g) for g in grads], (highest / (found + 1e-6)).clamp(max=1.0))
        return found

    def part(self, name: str, tensor: Any) -> Part:
        """Where a parameter's elements that are here, or those of a tensor like it, lie in the whole."""
        return part_of(tensor, self.cuts.get(name, ()))

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Give the parts of parameters that are here their first values."""
        for name, parameter in self.named_parameters():
            here, part = local(parameter), self.part(name, parameter)
            if here.numel():
                layers, device = self.config.layers, here.device
                slices = part.slices(here.shape)
                here.copy_(first_values(name, part.shape, slices, seed, layers, self.vocab_size, device))
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
        """The sums of `Statistics`, over all processes that have other tokens or layers; they begin again."""
        moe, device = self.config.moe, self.world.device
        names = ["z_loss"] if self.config.z_loss else []
        names += ["balance_loss", "router_z_loss"] if moe else []
        sums = {name: torch.zeros((), dtype=torch.float64, device=device) for name in names}
        if self.parts[0].statistics.collect_activations:
            sums["activation"] = torch.zeros(2, dtype=torch.float64, device=device)
        if moe:
            sums["load"] = torch.zeros(self.config.layers, moe.experts, dtype=torch.int64, device=device)
        for part in self.parts:
            for name, value in part.statistics.take().items():
                sums[name] = sums[name] + value
        if self.mesh is not None:
            for name, value in sums.items():
                dist.all_reduce(value)
                sums[name] = value // self.world.tensor if name == "load" else value / self.world.tensor
        return sums


def build(config: TrainConfig, vocab_size: int, world: World) -> ParallelModel:
    """The decoder of a config in this process's place, with its first values; collective."""
    if world.size == 1:
        with world.device:  # a GPU makes the first values at once, and the same
            whole = Decoder(config.model, vocab_size, config.seed)
        adapt(whole, config, world.device)
        return ParallelModel([whole], world)
    mesh, parallel = make_mesh(config.parallel, world), config.parallel
    parts: list[Decoder] = []
    cuts: Cuts = {}
    for piece in range(mesh.stage, parallel.pieces, parallel.pipeline):
        with torch.device("meta"):
            part = keep(Decoder(config.model, vocab_size), piece, parallel.pieces)
            cuts.update(split_model(part, mesh))
        adapt(part, config, world.device)
        if parallel.zero:
            shard(part, mesh, TYPES.get(config.precision), offload_policy(config.memory))
        part.to_empty(device="cpu" if config.memory.offload == "optimizer" else world.device)
        for buffer in part.buffers():  # which are never offloaded
            buffer.data = buffer.data.to(world.device)
        if parallel.pipeline > 1:  # whose schedule calls it
            part.forward = computing(config, world.device)(part.forward)  # type: ignore[method-assign]
        parts.append(part)
    model = ParallelModel(parts, world, mesh, cuts)
    model.initialise(config.seed)
    return model
