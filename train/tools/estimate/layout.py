"""A model as the estimate sees it (its parameters by name and shape, built without memory), and a layout: how model and
batch are divided among processes."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.flops import Windows
from corpusmill.train.model.split import Splits, declared_splits
from corpusmill.train.optim.make import kind_of
from corpusmill.train.parallel.pipeline import layers_of

if TYPE_CHECKING:
    from corpusmill.schemas.latent import MLAConfig
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.optim import ParameterKind
    from corpusmill.schemas.parallel import ParallelConfig, Schedule


@dataclass(frozen=True)
class Weight:
    """One parameter. `layer` is None for embeddings, the last norm and the head; `splits` are the axes and dimensions
    along which parallelism may divide it."""

    name: str
    shape: tuple[int, ...]
    kind: ParameterKind
    layer: int | None
    splits: Splits = ()

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def expert(self) -> bool:
        """Whether it is a stack of experts, [experts, out, in]."""
        return len(self.shape) == 3

    @property
    def product(self) -> bool:
        """Whether tokens are multiplied by it."""
        return self.kind in ("matrices", "head")

    def parts(self, tensor: int, expert: int) -> int:
        """Number of parts, with `tensor` and `expert` processes along these axes."""
        counts = {"tensor": tensor, "expert": expert}
        return math.prod(counts[axis] for axis, _ in self.splits)


@dataclass(frozen=True)
class Shape:
    """A decoder. `top_k` experts of `experts` take each token in layers that have them (0: none have)."""

    weights: tuple[Weight, ...]
    layers: int
    heads: int
    kv_heads: int
    dropout: float
    top_k: int = 0
    loss_chunk: int | None = None  # tokens whose logits are in memory at once; None: all
    windows: Windows = field(default_factory=dict)
    causal: bool = True
    softcap: bool = False  # of the logits of tokens
    mla: MLAConfig | None = None
    blockwise: bool = False  # attention with capped scores or sinks, which a CPU computes in blocks
    further: int = 0  # layers for tokens after the next, numbered after the others

    @property
    def parameters(self) -> int:
        return sum(weight.numel for weight in self.weights)

    @cached_property
    def vocab(self) -> int:
        return next(w.shape[0] for w in self.weights if w.name == "embedding.weight")

    @cached_property
    def dim(self) -> int:
        return next(w.shape[1] for w in self.weights if w.name == "embedding.weight")

    @property
    def tied(self) -> bool:
        return not any(weight.kind == "head" for weight in self.weights)

    def width(self, layer: int, part: str) -> int:
        """Features that come out of a matrix product of a layer: q, k, v, up, gate, shared.up, router; 0 if it has none."""
        return self._widths.get((layer, part), 0)

    @cached_property
    def _widths(self) -> dict[tuple[int, str], int]:
        place = re.compile(r".+\.(?:attention|ffn)\.([\w.]+?)(?:\.weight)?$")
        found = ((place.match(w.name), w) for w in self.weights if len(w.shape) > 1)
        return {(w.layer, match[1]): w.shape[-2] for match, w in found if match and w.layer is not None}

    @property
    def rotated(self) -> float:
        """Dimensions of a head that rotary positions rotate."""
        return self.mla.rope_head_dim if self.mla else self.width(0, "q") / self.heads

    def normed(self, layer: int) -> bool:
        """Whether the layer norms its queries and keys."""
        return any(weight.name.endswith("q_norm.weight") for weight in self.by_layer[layer])

    def mixes(self, layer: int) -> bool:
        """Whether the layer mixes its values with those of the first."""
        return any(weight.name.endswith("value_mix") for weight in self.by_layer[layer])

    def has_experts(self, layer: int) -> bool:
        return any(weight.expert for weight in self.by_layer[layer])

    @cached_property
    def hidden(self) -> set[int]:
        """The widths of the feed-forward layers, of experts those of one."""
        return {width for (_, part), width in self._widths.items() if part in ("up", "shared.up")}

    @cached_property
    def experts(self) -> int:
        return max((weight.shape[0] for weight in self.weights if weight.expert), default=0)

    @cached_property
    def by_layer(self) -> dict[int | None, list[Weight]]:
        found: dict[int | None, list[Weight]] = {}
        for weight in self.weights:
            found.setdefault(weight.layer, []).append(weight)
        return found

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters, by name."""
        return {weight.name: weight.shape for weight in self.weights}


def shape_of(config: ModelConfig, vocab_size: int) -> Shape:
    """The shape of a config's decoder, of any size."""
    with torch.device("meta"):
        model = Decoder(config, vocab_size)
    weights, splits = [], declared_splits(model)
    for name, parameter in model.named_parameters():
        number = re.match(r"(layers|mtp)\.(\d+)\.", name)
        layer = int(number[2]) + (config.layers if number[1] == "mtp" else 0) if number else None
        kind = kind_of(name, parameter)
        weights.append(Weight(name, tuple(parameter.shape), kind, layer, splits.get(name, ())))
    return Shape(
        tuple(weights), config.layers, config.heads, config.key_value_heads, config.dropout,
        config.moe.top_k if config.moe else 0, config.loss_chunk, config.windows, config.causal, config.logit_softcap is not None, config.mla,
        config.attention_softcap is not None or config.attention_sinks, config.mtp or 0,
    )  # fmt: skip


# Schedules with several chunks per process: warm-up micro-batches that a stage has beyond those of the next stage.
LOOPED = {"interleaved": 2, "zero_bubble": 1}
NODE = 8  # GPUs on one fast network, the limit of tensor parallelism


@dataclass(frozen=True)
class Layout:
    """`dp` x `cp` x `tp` x `pp` processes; `cp` of them share each sequence, and experts are divided among `ep` of the dp x cp.
    `zero` is the stage of sharding over dp x cp, within each of `replicate` groups of them. `chunks`: pieces of the model in a process, with `interleaved` and
    `zero_bubble`."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    zero: int = 0
    replicate: int = 1
    schedule: Schedule = "1f1b"
    chunks: int = 2
    cp: int = 1
    ring: bool = False  # keys and values pass from one of `cp` to the next, and are not gathered

    @classmethod
    def of(cls, config: ParallelConfig) -> Layout:
        """The layout of a config, with dp 1."""
        return cls(
            1, config.tensor, config.pipeline, config.expert, config.zero, config.replicate, config.schedule, config.chunks,
            config.context, config.ring,
        )  # fmt: skip

    @property
    def processes(self) -> int:
        return self.dp * self.cp * self.tp * self.pp

    @property
    def passing(self) -> bool:
        """Whether keys and values pass from process to process."""
        return self.ring and self.cp > 1

    @property
    def sharing(self) -> int:
        """Processes among which `zero` shards a parameter: for it, those that share sequences are as those that do not."""
        return self.dp * self.cp

    def __str__(self) -> str:
        parts = [f"dp {self.dp}"] + [
            f"{name} {size}"
            for name, size in (
                ("cp", self.cp),
                ("tp", self.tp),
                ("pp", self.pp),
                ("ep", self.ep),
                ("replicate", self.replicate),
            )
            if size > 1
        ]
        if self.passing:
            parts[1] += " in a ring"
        return " · ".join(parts + ([f"zero {self.zero}"] if self.zero else []))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def refusal(self, shape: Shape, length: int, global_batch: int, micro_batch: int) -> str | None:
        """Why the trainer would reject this layout of a model, its sequences and a batch, and what to set instead; or None."""
        for key, parts, what, whole in (
            ("tp", self.tp, "model.heads", shape.heads), ("tp", self.tp, "model.kv_heads", shape.kv_heads),
            *(("tp", self.tp, "the width of a feed-forward layer,", width) for width in shape.hidden),
            ("tp", self.tp, "the padded vocabulary", shape.vocab), *self._lengths(length),
            ("ep", self.ep, "model.moe.experts", shape.experts),
            ("ep x replicate", self.ep * self.replicate, "the data-parallel processes,", self.sharing),
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
        if shape.further and (self.pp > 1 or self.cp > 1):
            return "model.mtp needs whole sequences and no pipeline: set pp and cp to 1"
        if self.pieces > shape.layers:
            return f"{self.pieces} pieces are more than model.layers {shape.layers}: lower pp or chunks"
        if self.micro_batches(global_batch, micro_batch) < self.pp:
            return (
                f"{self.micro_batches(global_batch, micro_batch)} micro-batches leave some of {self.pp} stages idle: set"
                f" data.global_batch to {rows * self.pp}"
            )
        return None

    def _lengths(self, length: int) -> list[tuple[str, int, str, int]]:
        """What must divide the length of a sequence."""
        if self.cp == 1:
            return [("tp", self.tp, "data.sequence_length", length)]
        return [("2 x cp x tp", 2 * self.cp * self.tp, "data.sequence_length", length)]

    @property
    def pieces(self) -> int:
        """Pieces of the model, over all stages."""
        return self.pp * (self.chunks if self.pp > 1 and self.schedule in LOOPED else 1)

    def micro_batches(self, global_batch: int, micro_batch: int) -> int:
        """Micro-batches of a process in a step."""
        return global_batch // (micro_batch * self.dp)

    def in_flight(self, stage: int, micro_batches: int) -> float:
        """Micro-batches whose activations a stage keeps at once, as a multiple of one pass through it.

        GPipe keeps all (Huang et al. 2019); 1F1B at most one for this and each later stage (Narayanan et al. 2019);
        interleaved: Korthikanti et al. 2022, section 4.2.3; zero-bubble as many as 1F1B with one chunk (ZB-H1, Qi et al.
        2024), with more chunks as many as PyTorch's schedule starts with.
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


def divisors(number: int) -> list[int]:
    """Ascending."""
    return [n for n in range(1, number + 1) if number % n == 0]
