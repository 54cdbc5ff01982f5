"""`corpusmill compress`: the newest checkpoint of a run quantised or pruned, and written as a model that training can start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.compression import COMPRESSION, Compression, CompressionSettings
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import mean_of
from corpusmill.train.parallel.mesh import join
from corpusmill.train.tools.compress.calibrate import Inputs, Stream, calibration_rows
from corpusmill.train.tools.compress.prune import (
    least_important,
    outside,
    scores,
    smallest,
    without_layers,
)
from corpusmill.train.tools.compress.quantise import gptq, quantise
from corpusmill.train.tools.compress.report import changes, matrices, stored_bytes, zeros
from corpusmill.train.tools.hugging_face import architecture_of, refuse_model_in, write_model

if TYPE_CHECKING:
    from corpusmill.train.model.decoder import Decoder


def compress(config: TrainConfig, run: Folder, out: Folder, settings: CompressionSettings) -> Compression:
    """Compress the model of a run; returns what `compression.json` in `out` holds.

    `out` becomes a model in the Hugging Face layout, in float32, with the values that quantised weights stand for and zeros where
    weights were pruned. Raises `UserError` for a model without a counterpart in that layout or that the method is not for, and if
    `out` holds a model.
    """
    refuse_model_in(out)
    architecture_of(config, run)  # refuses early
    if config.model.moe and settings.method in ("gptq", "wanda"):
        raise UserError(
            f"model.moe: activations of experts are not measured, as --method {settings.method} needs; take int8, int4, magnitude or"
            " depth"
        )
    world = join(config)
    shards = open_run_data(config)
    found = newest_checkpoint(run)
    before, after = (load_model(config, found, shards.set.vocab_size, world.device) for _ in range(2))
    stream = Stream(after, calibration_rows(config, shards)) if settings.calibrated else None
    importance: list[float] = []
    removed: list[int] = []
    if settings.layers is not None and stream is not None:
        importance = [stream.advance(layer) for layer in after.layers.values()]
        removed = least_important(importance, settings.layers)
        after = without_layers(after, removed)
    else:
        rewrite(after, settings, stream)
    sources = changes(before, after, config, shards, world)
    left = config.model_copy(update={"model": after.config})
    result = Compression(
        name=config.name,
        step=found.step,
        weights_hash=found.weights_xxh3,
        settings=settings,
        calibration_rows=stream.rows if stream else 0,
        calibration_tokens=stream.tokens if stream else 0,
        removed=removed,
        importance=importance,
        model={"layers": after.config.layers} if removed else {},
        weights=sum(value.numel() for value in matrices(after).values()),
        zeros=zeros(after),
        bytes_before=stored_bytes(before),
        bytes_after=stored_bytes(after, settings),
        sources=sources,
        difference=mean_of([one.difference for one in sources.values()]),
    )
    if world.first:
        (out / COMPRESSION).write(result.to_json())
        tensors = {name: value.cpu() for name, value in after.state_dict().items()}
        write_model(left, run, out, architecture_of(left, run), tensors)
    return result


@torch.no_grad()
def rewrite(model: Decoder, settings: CompressionSettings, stream: Stream | None = None) -> None:
    """Quantise or prune all matrices of a model in place, layer by layer; with a `stream`, by activations as earlier layers, already
    rewritten, give them."""
    inside = matrices(model)
    for number, layer in model.layers.items():
        measured = stream.measure(layer, settings.method == "gptq") if stream else {}
        for name, _ in layer.named_parameters():
            weight = inside.get(f"layers.{number}.{name}")
            if weight is not None:
                rows = weight.flatten(0, -2)
                values = rewritten(rows, settings, measured.get(name), f"layers.{number}.{name}")
                weight.copy_(values.view(weight.shape))
        if stream:
            stream.advance(layer)


def rewritten(weight: Tensor, settings: CompressionSettings, of: Inputs | None, where: str) -> Tensor:
    """The matrix `where` [rows, in], float32, as the method leaves it; `of`: its inputs, for a method that looks at them."""
    if settings.method == "gptq" and of is not None and of.hessian is not None:
        return gptq(weight, of.hessian, 4, settings.group or weight.shape[1]).values()
    if settings.bits:
        return quantise(weight, settings.bits, settings.group).values()
    score = scores(weight, None if of is None else of.squares)
    if settings.pattern:
        return weight.masked_fill(outside(score, *settings.kept, where), 0.0)
    return weight.masked_fill(smallest(score, settings.share or 0.0), 0.0)
