"""Ways to make a model smaller, ours and torchao's, and what each of them changes of the same model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.model.decoder import Decoder

GROUP = 32


class Way(NamedTuple):
    """A change of a model in place; `beside`: the plain way of its kind, to be better than."""

    name: str
    change: Callable[[Decoder], None]
    beside: str = ""


def torchao(model: Decoder, bits: int) -> None:
    """Quantise the matrices of the layers in place."""
    from torch import nn
    from torchao.quantization import quantize_

    quantize_(
        model,
        torchao_config(bits),
        filter_fn=lambda module, name: isinstance(module, nn.Linear) and "layers." in name,
    )


def torchao_config(bits: int) -> Any:
    """In 4 bits, of groups of `GROUP`: torchao's packed int4 has no kernel for this processor."""
    import torch
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerGroup

    if bits == 8:
        return Int8WeightOnlyConfig()
    return IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP))


def ours(method: str, config: Any, shards: Any, **how: Any) -> Callable[[Decoder], None]:
    """What `corpusmill compress` does to a model in memory."""
    from corpusmill.schemas.compression import CompressionSettings
    from corpusmill.train.tools.compress.calibrate import Stream, calibration_rows
    from corpusmill.train.tools.compress.compress import rewrite

    group = {"group": GROUP} if method in ("int4", "gptq", "awq") else {}
    settings = CompressionSettings.model_validate({"method": method, **group, **how})

    def change(model: Decoder) -> None:
        stream = Stream(model, calibration_rows(config, shards)) if settings.calibrated else None
        rewrite(model, settings, stream)

    return change


class Compared(NamedTuple):
    """A run's newest model, its bits per byte by source, its logits [1, T, V] of the tokens 1, 2 .., and a row for each way: what it
    changes of that model."""

    config: TrainConfig
    before: dict[str, float]
    weights: int  # in matrices
    logits: Tensor
    rows: list[dict[str, Any]]


def compared(run: str) -> Compared:
    """All ways, on the model of a run."""
    import torch

    from corpusmill.common.storage import Folder
    from corpusmill.train.data.opening import open_run_data
    from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
    from corpusmill.train.evaluate.statistics import mean_of
    from corpusmill.train.parallel.mesh import join
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.compress.report import changes, matrices, speeds

    config, _ = open_run(run)
    world, shards = join(config), open_run_data(config)
    before = load_model(config, newest_checkpoint(Folder(run)), shards.set.vocab_size, world.device)
    rounded, half, pattern = (
        f"int4 in groups of {GROUP}, ours",
        "half of the weights, magnitude",
        "2:4, magnitude",
    )
    ways = [
        Way("int8, ours", ours("int8", config, shards)),
        Way("int8, torchao", lambda model: torchao(model, 8)),
        Way(rounded, ours("int4", config, shards)),
        Way(f"int4 in groups of {GROUP}, torchao", lambda model: torchao(model, 4), rounded),
        Way(f"GPTQ, int4 in groups of {GROUP}, ours", ours("gptq", config, shards), rounded),
        Way(f"AWQ, int4 in groups of {GROUP}, ours", ours("awq", config, shards), rounded),
        Way(half, ours("magnitude", config, shards, share=0.5)),
        Way("half of the weights, Wanda", ours("wanda", config, shards, share=0.5), half),
        Way(pattern, ours("magnitude", config, shards, pattern="2:4")),
        Way("2:4, Wanda", ours("wanda", config, shards, pattern="2:4"), pattern),
    ]
    models = [before]
    for way in ways:
        models.append(copy.deepcopy(before))
        way.change(models[-1])
    speed = speeds(models, config, shards)
    tokens = torch.arange(1, 1 + config.data.sequence_length)[None]
    with torch.inference_mode():
        logits = [model(tokens) for model in models]
    after: dict[str, dict[str, float]] = {}
    rows = []
    for number, (way, found) in enumerate(
        zip(ways, changes(before, models[1:], config, shards, world), strict=True), 1
    ):
        after[way.name] = {name: one.difference.value for name, one in found.items() if one.difference}
        more = mean_of([one.difference for one in found.values()])
        assert more is not None
        better = ""
        if plain := after.get(way.beside):
            better = f"{sum(value <= plain[name] for name, value in after[way.name].items())} of {len(plain)}"
        rows.append(
            {
                "way": way.name, "more": [more.value, more.low, more.high], "better": better, "sources": after[way.name],
                "kl": sum(one.divergence.value for one in found.values()) / len(found),
                "logits": float((logits[number] - logits[0]).abs().max()), "speed": speed[number] / speed[0],
            }
        )  # fmt: skip
    weights = sum(value.numel() for value in matrices(before).values())
    at_first = {name: one.before.value for name, one in found.items() if one.before}
    return Compared(config, at_first, weights, logits[0], rows)


def explained(torchao: str) -> str:
    """What the columns are."""
    return (
        f"torchao {torchao}; tokens/s of a forward pass, medians of rounds in which all models take turns, as a share of the model before."
        " Better: sources with fewer bits per byte than the plain method of that kind (int4, magnitude) leaves."
    )


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown: means over sources, then the sources' bits per byte."""
    names = list(rows[0]["sources"])
    lines = [
        "| | bits per byte more | better | KL, nats a token | largest logit difference | tokens/s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        value, low, high = row["more"]
        lines.append(
            f"| {row['way']} | {value:+.5f} ({low:+.5f} to {high:+.5f}) | {row['better']} | {row['kl']:.2e} | {row['logits']:.4f} |"
            f" {row['speed']:.2f} |"
        )
    lines += ["", f"| bits per byte more | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for row in rows:
        cells = " | ".join(f"{row['sources'][name]:+.5f}" for name in names)
        lines.append(f"| {row['way']} | {cells} |")
    return "\n".join(lines)
