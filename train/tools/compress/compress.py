"""`corpusmill compress`: the newest checkpoint of a run quantised or pruned, and written as a model that training can start from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from corpusmill.train.tools.compress.calibrate import Inputs, Stream, calibration_rows, shared
from corpusmill.train.tools.compress.prune import (
    least_important,
    outside,
    scores,
    smallest,
    without_layers,
)
from corpusmill.train.tools.compress.quantise import awq, gptq, quantise
from corpusmill.train.tools.compress.report import changes, matrices, speeds, stored_bytes, zeros
from corpusmill.train.tools.compress.width import importance, narrower, without_width
from corpusmill.train.tools.hugging_face import architecture_of, refuse_model_in, write_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.decoder import Decoder


def compress(config: TrainConfig, run: Folder, out: Folder, settings: CompressionSettings) -> Compression:
    """Compress the model of a run; returns what `compression.json` in `out` holds.

    `out` becomes a model in the Hugging Face layout, in float32, with the values that quantised weights stand for and zeros where
    weights were pruned. Raises `UserError` for a model without a counterpart in that layout or that the method is not for, and if
    `out` holds a model.
    """
    refuse_model_in(out)
    if config.model.mtp:
        raise UserError(
            "model.mtp: layers for further tokens are not compressed; export the run, and start one from the export without them"
        )
    left = config
    if settings.method == "width":
        left = config.model_copy(update={"model": narrower(config.model, settings)})
    for one in (config, left):
        architecture_of(one, run)  # refuses early
    if config.model.moe and settings.method in ("gptq", "awq", "wanda", "width"):
        raise UserError(
            f"model.moe: activations of experts are not measured, as --method {settings.method} needs; take int8, int4, magnitude or"
            " depth"
        )
    world = join(config)
    shards = open_run_data(config)
    found = newest_checkpoint(run)
    before, after = (load_model(config, found, shards.set.vocab_size, world.device) for _ in range(2))
    stream = Stream(after, calibration_rows(config, shards)) if settings.calibrated else None
    blocks: list[float] = []
    removed: list[int] = []
    if settings.layers is not None and stream is not None:
        blocks = [stream.advance(layer) for layer in after.layers.values()]
        removed = least_important(blocks, settings.layers)
        after = without_layers(after, removed)
    elif settings.method == "width" and stream is not None:
        after = without_width(after, left.model, importance(after, stream))
    else:
        rewrite(after, settings, stream)
    (sources,) = changes(before, [after], config, shards, world)
    left = config.model_copy(update={"model": after.config})
    speed = speeds((before, after), config, shards)
    result = Compression(
        name=config.name,
        step=found.step,
        weights_hash=found.weights_xxh3,
        settings=settings,
        calibration_rows=stream.rows if stream else 0,
        calibration_tokens=stream.tokens if stream else 0,
        removed=removed,
        importance=blocks,
        model=others(config.model, after.config),
        weights=sum(value.numel() for value in matrices(after).values()),
        zeros=zeros(after),
        bytes_before=stored_bytes(before),
        bytes_after=stored_bytes(after, settings),
        speed_before=speed[0],
        speed_after=speed[1],
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
        measured = stream.measure(layer, settings.method in ("gptq", "awq")) if stream else {}
        here = {
            name: inside[whole]
            for name in dict(layer.named_parameters())
            if (whole := f"layers.{number}.{name}") in inside
        }
        groups: Iterable[Sequence[str]] = ((name,) for name in here)
        if settings.method == "awq":
            names_here = [name.removesuffix(".weight") for name in here]
            groups = ([f"{name}.weight" for name in names] for names in shared(names_here))
        for names in groups:
            rows = [here[name].flatten(0, -2) for name in names]
            values = rewritten(rows, settings, measured.get(names[0]), f"layers.{number}.{names[0]}")
            for name, value in zip(names, values, strict=True):
                here[name].copy_(value.view(here[name].shape))
        if stream:
            stream.advance(layer)


def rewritten(
    weights: Sequence[Tensor], settings: CompressionSettings, of: Inputs | None, where: str
) -> list[Tensor]:
    """Matrices [rows, in] with the same inputs, float32, as the method leaves them; `of`: their inputs, for a method that looks at
    them; `where`: the first one's name."""
    if settings.method == "awq" and of is not None and of.hessian is not None:
        return awq(weights, of.hessian, of.sizes, 4, settings.group or weights[0].shape[1])
    return [_rewritten(weight, settings, of, where) for weight in weights]


def _rewritten(weight: Tensor, settings: CompressionSettings, of: Inputs | None, where: str) -> Tensor:
    if settings.method == "gptq" and of is not None and of.hessian is not None:
        return gptq(weight, of.hessian, 4, settings.group or weight.shape[1]).values()
    if settings.bits:
        return quantise(weight, settings.bits, settings.group).values()
    score = scores(weight, None if of is None else of.squares)
    if settings.pattern:
        return weight.masked_fill(outside(score, *settings.kept, where), 0.0)
    return weight.masked_fill(smallest(score, settings.share or 0.0), 0.0)


def others(before: ModelConfig, after: ModelConfig) -> dict[str, Any]:
    """The keys of a model that are others after."""
    values = after.model_dump()
    return {name: values[name] for name, value in before.model_dump().items() if values[name] != value}
