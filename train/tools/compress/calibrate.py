"""What goes into each product of a trained decoder: rows of its train text on their way through its layers, one layer at a time, so
that a layer that was rewritten is what the next one's inputs come from (as in GPTQ and Wanda)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.common.errors import UserError
from corpusmill.train.batch import inputs
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.model.attend import Boundaries
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.model.rope import Rotation

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch
    from corpusmill.train.data.shards import Shards
    from corpusmill.train.model.decoder import Decoder

ROWS = 128  # of calibration, as in GPTQ and Wanda
# Products of a layer that have the same inputs, which the first one's stand for.
SHARED = (
    ("attention.q", "attention.q_a", "attention.k", "attention.v", "attention.kv_a"), ("attention.q_b",), ("attention.kv_b",),
    ("attention.o",), ("ffn.up", "ffn.gate"), ("ffn.down",),
)  # fmt: skip


def shared(products: Collection[str]) -> list[list[str]]:
    """`SHARED`, of a layer that has these products."""
    found = [[name for name in names if name in products] for names in SHARED]
    return [names for names in found if names]


class Inputs(NamedTuple):
    """Of a product, means over the calibration tokens, float64: of each feature's square and size, [in], and of x x^T, [in, in]."""

    squares: Tensor
    sizes: Tensor
    hessian: Tensor | None


@dataclass
class _Part:
    """Rows of a batch before a layer."""

    hidden: Tensor  # float32 [B, T, C]
    ids: Tensor
    rope: Rotation | None
    within: Boundaries
    scored: Tensor  # bool [B, T]: not padding

    def through(self, layer: nn.Module) -> Tensor:
        found: Tensor = layer(self.hidden, self.rope, self.within, self.ids, None)[0]
        return found


def calibration_rows(config: TrainConfig, shards: Shards, rows: int = ROWS) -> list[Batch]:
    """About `rows` rows of the train splits that the run reads, as many of each source, spread evenly over it; the same on every call.
    Raises `UserError` if there are none."""
    sources = [one for one in shards.read(config.data).values() if one.index.ntokens]
    if not sources:
        raise UserError(f"{config.data.shards}: no train split has text to calibrate on")
    length, each = config.data.sequence_length, -(-rows // len(sources))
    return [
        batch
        for source in sources
        for batch in sample(source, length, each * length, batch=config.data.micro_batch)
    ]


class Stream:
    """Calibration rows on their way through a whole decoder, in float32. `tokens`: those that are measured."""

    @torch.no_grad()
    def __init__(self, model: Decoder, batches: Sequence[Batch]) -> None:
        self._parts = []
        for batch in batches:
            rows = inputs(batch, model.embedding.weight.device)[0]
            ids = rows["tokens"]
            positions = rows.get("positions", torch.arange(ids.shape[1], device=ids.device)[None])
            x = model.embed(ids, positions, None)
            within = model.boundaries(ids, x.dtype, rows.get("documents"), rows.get("cu_seqlens"))
            scored = rows["labels"] != IGNORED
            self._parts.append(_Part(x, ids, model.rotation(positions), within, scored))
        self.tokens = sum(int(part.scored.sum()) for part in self._parts)
        self.rows = sum(len(part.ids) for part in self._parts)

    @torch.no_grad()
    def measure(self, layer: nn.Module, hessian: bool) -> dict[str, Inputs]:
        """The inputs of the products of a layer without experts, by the name of their weight; `hessian`: with x x^T."""
        products = {name: one for name, one in layer.named_modules() if isinstance(one, nn.Linear)}
        sums: dict[str, list[Tensor]] = {}
        scored: list[Tensor] = []  # of the rows that are on their way

        def adding(name: str) -> Callable[..., None]:
            def add(_product: nn.Module, given: Any) -> None:
                x = given[0][scored[-1]].float()
                found = [x.abs().sum(0).double(), (x.T @ x if hessian else x.square().sum(0)).double()]
                sums[name] = (
                    [a + b for a, b in zip(sums[name], found, strict=True)] if name in sums else found
                )

            return add

        together = shared(products)
        hooks = [products[names[0]].register_forward_pre_hook(adding(names[0])) for names in together]
        try:
            for part in self._parts:
                scored.append(part.scored)
                part.through(layer)
        finally:
            for hook in hooks:
                hook.remove()
        found = {}
        for first, *others in together:
            sizes, mean = (total / self.tokens for total in sums[first])
            of = Inputs(mean.diagonal().clone(), sizes, mean) if hessian else Inputs(mean, sizes, None)
            found.update({f"{name}.weight": of for name in (first, *others)})
        return found

    @torch.no_grad()
    def advance(self, layer: nn.Module) -> float:
        """Move the rows to behind a layer; returns its block importance, the mean over tokens of 1 - cos(input, output) (ShortGPT,
        Men et al. 2024)."""
        total = 0.0
        for part in self._parts:
            after = part.through(layer)
            cosine = F.cosine_similarity(part.hidden.double(), after.double(), dim=-1)
            total += float((1 - cosine)[part.scored].sum())
            part.hidden = after
        return total / self.tokens
