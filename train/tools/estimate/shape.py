"""A model as the estimate sees it: its parameters by name and shape (built without memory), and a few widths."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.split import Splits, declared_splits
from corpusmill.train.optim.make import kind_of

if TYPE_CHECKING:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.optim import ParameterKind


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
        """Into how many parts so many processes along these axes divide it."""
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
        place = re.compile(r"layers\.(\d+)\.(?:attention|ffn)\.([\w.]+?)(?:\.weight)?$")
        found = ((place.match(w.name), w) for w in self.weights if len(w.shape) > 1)
        return {(int(match[1]), match[2]): w.shape[-2] for match, w in found if match}

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
        number = re.match(r"layers\.(\d+)\.", name)
        layer = int(number[1]) if number else None
        kind = kind_of(name, parameter)
        weights.append(Weight(name, tuple(parameter.shape), kind, layer, splits.get(name, ())))
    return Shape(
        tuple(weights), config.layers, config.heads, config.key_value_heads, config.dropout,
        config.moe.top_k if config.moe else 0, config.loss_chunk,
    )  # fmt: skip
