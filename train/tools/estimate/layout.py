"""A layout: how a model and a batch are divided among processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from corpusmill.train.parallel.pipeline import layers_of
from corpusmill.train.tools.estimate.shape import Shape

if TYPE_CHECKING:
    from corpusmill.schemas.parallel import ParallelConfig, Schedule

# Schedules with several chunks per process: extra warm-up micro-batches of a stage, compared with the next stage.
LOOPED = {"interleaved": 2, "zero_bubble": 1}
NODE = 8  # GPUs that are joined by the fast network: tensor parallelism stays within


@dataclass(frozen=True)
class Layout:
    """`dp` x `tp` x `pp` processes; experts are divided among `ep` of the `dp`. `zero` is the stage of sharding over dp.

    With `replicate` > 1 so many groups of the dp processes each shard within themselves. `chunks` are the model's pieces in
    a process under `interleaved` and `zero_bubble`.
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

    def refusal(self, shape: Shape, length: int, global_batch: int, micro_batch: int) -> str | None:
        """Why the trainer would not lay out a model, its sequences and a batch so, and what to set instead; or None."""
        for key, parts, what, whole in (
            ("tp", self.tp, "model.heads", shape.heads), ("tp", self.tp, "model.kv_heads", shape.kv_heads),
            *(("tp", self.tp, "the width of a feed-forward layer,", width) for width in shape.hidden),
            ("tp", self.tp, "the padded vocabulary", shape.vocab), ("tp", self.tp, "data.sequence_length", length),
            ("ep", self.ep, "model.moe.experts", shape.experts),
            ("ep x replicate", self.ep * self.replicate, "the data-parallel processes,", self.dp),
        ):  # fmt: skip
            if whole % parts:
                fit = next(n for n in range(parts, 0, -1) if whole % n == 0)
                return f"{key} {parts} does not divide {what} {whole}: set {key} to {fit}"
        rows = micro_batch * self.dp
        if global_batch % rows:
            return (
                f"data.micro_batch {micro_batch} x dp {self.dp} does not divide data.global_batch {global_batch}: set"
                f" data.global_batch to {-(-global_batch // rows) * rows}"
            )
        if self.ep > 1 and self.zero == 0:
            return f"ep {self.ep} needs sharded states: set zero to 1, 2 or 3"
        if self.ep > 1 and not shape.experts:
            return f"ep {self.ep}, and the model has no experts: set ep to 1"
        if self.pieces > shape.layers:
            return f"{self.pieces} pieces are more than model.layers {shape.layers}: lower pp or chunks"
        if self.micro_batches(global_batch, micro_batch) < self.pp:
            return (
                f"{self.micro_batches(global_batch, micro_batch)} micro-batches leave some of {self.pp} stages idle: set"
                f" data.global_batch to {rows * self.pp}"
            )
        return None

    @property
    def pieces(self) -> int:
        """Of the model, over all stages."""
        return self.pp * (self.chunks if self.pp > 1 and self.schedule in LOOPED else 1)

    def micro_batches(self, global_batch: int, micro_batch: int) -> int:
        """Of a process in a step."""
        return global_batch // (micro_batch * self.dp)

    def in_flight(self, stage: int, micro_batches: int) -> float:
        """Micro-batches whose activations a stage keeps at once, as a multiple of one pass through it.

        GPipe keeps all (Huang et al. 2019); 1F1B at most one for each stage from here on (Narayanan et al. 2019);
        interleaved as Korthikanti et al. 2022, section 4.2.3; zero-bubble as many as 1F1B with one chunk (ZB-H1, Qi et al.
        2024), and with more chunks as many as PyTorch's schedule starts with.
        """
        if self.pp == 1:
            return 1
        if self.schedule == "gpipe":
            return micro_batches
        after = self.pp - stage - 1
        if self.schedule in LOOPED:
            pieces = LOOPED[self.schedule] * after + (self.chunks - 1) * self.pp + 1
            return min(pieces / self.chunks, micro_batches)
        return min(after + 1, micro_batches)

    def stages(self, shape: Shape) -> list[list[int]]:
        """The layers of each stage."""
        return [list(layers) for layers in layers_of(shape.layers, self.pp)]
