"""A layout: how a model and a batch are dealt to processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from train.estimate.shape import Shape

if TYPE_CHECKING:
    from schemas.parallel import ParallelConfig, Schedule

NODE = 8  # GPUs that are joined by the fast network: tensor parallelism stays within


@dataclass(frozen=True)
class Layout:
    """`dp` x `tp` x `pp` processes; experts are dealt to `ep` of the `dp`. `zero` is the stage of sharding over dp.

    With `replicate` > 1 so many groups of the dp processes each shard within themselves. `chunks` are the model's pieces in
    a process under `interleaved`.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    zero: int = 0
    replicate: int = 1
    schedule: Schedule = "1f1b"
    chunks: int = 2

    @classmethod
    def of(cls, config: ParallelConfig) -> Layout:
        """A config's, with dp still 1."""
        return cls(
            1, config.tensor, config.pipeline, config.expert, config.zero, config.replicate, config.schedule, config.chunks
        )  # fmt: skip

    @property
    def processes(self) -> int:
        return self.dp * self.tp * self.pp

    def __str__(self) -> str:
        parts = [f"dp {self.dp}"] + [
            f"{name} {size}"
            for name, size in (
                ("tp", self.tp),
                ("pp", self.pp),
                ("ep", self.ep),
                ("replicate", self.replicate),
            )
            if size > 1
        ]
        return " · ".join(parts + ([f"zero {self.zero}"] if self.zero else []))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def refusal(self, shape: Shape, global_batch: int, micro_batch: int) -> str | None:
        """Why a model and batch cannot be laid out so, or None."""
        for what, whole, parts in (
            ("heads", shape.heads, self.tp), ("kv_heads", shape.kv_heads, self.tp), ("vocabulary", shape.vocab, self.tp),
            ("dp", self.dp, self.ep * self.replicate), ("experts", shape.experts, self.ep),
            ("global_batch / micro_batch", global_batch // micro_batch, self.dp),
        ):  # fmt: skip
            if whole % parts:
                return f"{what} {whole} is not a multiple of {parts}"
        if self.ep > 1 and self.zero == 0:
            return "ep needs sharded states: zero 1, 2 or 3"
        if self.ep > 1 and not shape.experts:
            return "the model has no experts"
        pieces = self.pp * (self.chunks if self.schedule == "interleaved" else 1)
        if self.pp > 1 and pieces > shape.layers:
            return f"{shape.layers} layers make no {pieces} pieces"
        if self.pp > 1 and self.micro_batches(global_batch, micro_batch) < self.pp:
            return (
                f"{self.micro_batches(global_batch, micro_batch)} micro-batches leave {self.pp} stages idle"
            )
        return None

    def micro_batches(self, global_batch: int, micro_batch: int) -> int:
        """Of a process in a step."""
        return global_batch // (micro_batch * self.dp)

    def in_flight(self, stage: int, micro_batches: int) -> float:
        """Micro-batches whose activations a stage keeps at once, as a multiple of one pass through it.

        GPipe keeps all (Huang et al. 2019); 1F1B at most one for each stage from here on (Narayanan et al. 2019), and
        so does the zero-bubble schedule ZB-H1 (Qi et al. 2024); interleaved as Korthikanti et al. 2022, section 4.2.3.
        """
        if self.pp == 1:
            return 1
        if self.schedule == "gpipe":
            return micro_batches
        after = self.pp - stage - 1
        if self.schedule == "interleaved":
            pieces = 2 * after + (self.chunks - 1) * self.pp + 1
            return min(pieces / self.chunks, micro_batches)
        return min(after + 1, micro_batches)

    def stages(self, shape: Shape) -> list[list[int]]:
        """The layers of each stage."""
        bounds = [round(shape.layers * i / self.pp) for i in range(self.pp + 1)]
        return [list(range(low, high)) for low, high in pairwise(bounds)]
