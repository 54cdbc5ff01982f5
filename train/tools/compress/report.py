"""What a compression changed: losses of documents before and after, how far next-token distributions are apart, and the size that the
weights would have. Both models compute in float32, in which the result is written."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.schemas.compression import CompressionSettings, SourceChange
from corpusmill.schemas.evaluation import Estimate
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.evaluate.divergence import agreements, divergences
from corpusmill.train.evaluate.documents import paired_bits
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import interval
from corpusmill.train.evaluate.statistics import compared, estimate, linearised
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.tools.compress.quantise import FEW

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch
    from corpusmill.train.data.shards import Shards, Source
    from corpusmill.train.model.decoder import Decoder
    from corpusmill.train.parallel.mesh import World

ROUNDS = 5  # of timing
PLAIN = 2  # bytes of a weight that is stored as it is, in bfloat16, and of a scale


def changes(
    before: Decoder, after: Sequence[Decoder], config: TrainConfig, shards: Shards, world: World
) -> list[dict[str, SourceChange]]:
    """Of each model after, by source: what changed on its validation split. Raises `UserError` if no source has one."""
    plain = config.model_copy(update={"precision": "fp32"})
    scorers = [Scorer(ParallelModel([model], world), plain, world) for model in (before, *after)]
    found: list[dict[str, SourceChange]] = [{} for _ in after]
    for name, source in shards.validation.items():
        if source.index.ntokens:
            for one, change in zip(found, _changes(scorers[0], scorers[1:], source), strict=True):
                one[name] = change
    if not any(found):
        raise UserError(
            f"{config.data.shards}: no source has a validation split; set split.validation_share in the recipe"
        )
    return found


def _changes(before: Scorer, after: Sequence[Scorer], source: Source) -> Iterator[SourceChange]:
    """Of each model after."""
    data, tokens = before.config.data, before.config.validation.tokens
    (first, *others), sizes = paired_bits((before, *after), source)
    rows = list(sample(source, data.sequence_length, tokens, batch=data.micro_batch))
    for model, bits in zip(after, others, strict=True):
        difference = None
        if sizes.sum():
            difference = compared(linearised(bits, sizes), linearised(first, sizes)).estimate
        apart, same = list(divergences(before, model, rows)), list(agreements(before, model, rows))
        each = torch.cat([part[batch["labels"] >= 0] for part, batch in zip(apart, rows, strict=True)])
        yield SourceChange(
            before=interval(first, sizes), after=interval(bits, sizes), difference=difference,
            divergence=_mean(apart, rows), divergence_p99=float(np.quantile(each.numpy(), 0.99)),
            agreement=_mean(same, rows),
        )  # fmt: skip


def speeds(models: Sequence[Decoder], config: TrainConfig, shards: Shards) -> list[float]:
    """Tokens/s of each model's forward pass over a micro-batch of validation text, in float32: medians of rounds in which they take
    turns, after one that is not counted. Of text that `changes` has found."""
    source = next(one for one in shards.validation.values() if one.index.ntokens)
    length = config.data.sequence_length
    batch = next(
        iter(sample(source, length, config.data.micro_batch * length, batch=config.data.micro_batch))
    )
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(1 + ROUNDS):
        for model, found in zip(models, seconds, strict=True):
            device = model.embedding.weight.device
            tokens = batch["tokens"].to(device)
            start = time.perf_counter()
            with torch.inference_mode():
                model(tokens).sum().item()  # waits for a GPU
            found.append(time.perf_counter() - start)
    return [batch["tokens"].numel() / statistics.median(found[1:]) for found in seconds]


def _mean(parts: Sequence[Tensor], batches: Sequence[Batch]) -> Estimate:
    """Over scored tokens; rows are the units of its error."""
    sums = np.concatenate([part.double().sum(1).numpy() for part in parts])
    counts = np.concatenate([(batch["labels"] >= 0).sum(1).numpy() for batch in batches])
    return estimate(linearised(sums[counts > 0], counts[counts > 0]), proportion=False)


def matrices(model: Decoder) -> dict[str, Tensor]:
    """What is compressed, by name: the weights [.., out, in] of the products in layers, experts' too. Embedding, head, routers, norms
    and biases stay as they are."""
    return {
        name: value
        for name, value in model.named_parameters()
        if name.startswith("layers.") and value.ndim > 1 and not name.endswith("router.weight")
    }


def zeros(model: Decoder) -> float:
    """The share of the matrices' weights that is 0."""
    found = matrices(model).values()
    return sum(int((value == 0).sum()) for value in found) / sum(value.numel() for value in found)


def stored_bytes(model: Decoder, settings: CompressionSettings | None = None) -> int:
    """Of all weights as a method would store them (None: as they are, in bfloat16)."""
    inside = matrices(model)
    rest = sum(value.numel() for name, value in model.named_parameters() if name not in inside)
    return PLAIN * rest + sum(matrix_bytes(value, settings) for value in inside.values())


def matrix_bytes(weight: Tensor, settings: CompressionSettings | None) -> int:
    """Of one matrix. Quantised: codes, scales in float16, and in few bits a zero point for each scale, of as many bits as a code. Pruned
    by a share: a bit for each weight, and those that are left; by a pattern N:M: N of M, with their places among the M."""
    count, width = weight.numel(), weight.shape[-1]
    if settings is None or settings.method in ("depth", "width"):
        return PLAIN * count
    if settings.bits:
        groups = -(-width // (settings.group or width))
        inputs = (
            PLAIN * width if settings.method == "awq" else 0
        )  # scales of inputs, though products may share them
        points = groups if settings.bits <= FEW else 0
        codes = count // width * -(-(width + points) * settings.bits // 8)
        return codes + count // width * PLAIN * groups + inputs
    if settings.pattern is None:
        return PLAIN * int((weight != 0).sum()) + -(-count // 8)
    keep, of = settings.kept
    left = count // of * keep
    return PLAIN * left + -(-left * (of - 1).bit_length() // 8)
