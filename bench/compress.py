"""Weight-only quantisation of the quick start's model: ours (`corpusmill compress`) beside torchao's, on the same matrices of the same
trained model and the same validation text, in float32.

The matrices of attention and feed-forward are quantised, as `corpusmill compress` does; torchao keeps codes and computes with them
(`Int8WeightOnlyConfig`; `IntxWeightOnlyConfig` with int4 in groups, since its packed int4 has no kernel for this processor), ours
stores the values that the codes stand for. Bits per byte are means over sources, with the interval of the difference paired by
document.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import learning

if TYPE_CHECKING:
    from corpusmill.train.model.decoder import Decoder

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/train/quickstart.yaml"
GROUP = 32


def torchao(model: Decoder, bits: int) -> None:
    """Quantise the matrices of the layers in place."""
    import torch
    from torch import nn
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    config = (
        Int8WeightOnlyConfig()
        if bits == 8
        else IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP))
    )
    quantize_(
        model, config, filter_fn=lambda module, name: isinstance(module, nn.Linear) and "layers." in name
    )


def ours(method: str, config: Any, shards: Any) -> Callable[[Decoder], None]:
    """What `corpusmill compress` does to a model in memory."""
    from corpusmill.schemas.compression import CompressionSettings
    from corpusmill.train.tools.compress.calibrate import Stream, calibration_rows
    from corpusmill.train.tools.compress.compress import rewrite

    group = {} if method == "int8" else {"group": GROUP}
    settings = CompressionSettings.model_validate({"method": method, **group})

    def change(model: Decoder) -> None:
        stream = Stream(model, calibration_rows(config, shards)) if settings.calibrated else None
        rewrite(model, settings, stream)

    return change


def main() -> None:
    """Print Markdown."""
    import torch

    from corpusmill.common.storage import Folder
    from corpusmill.train.data.opening import open_run_data
    from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
    from corpusmill.train.evaluate.statistics import mean_of
    from corpusmill.train.parallel.mesh import join
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.compress.report import changes, matrices, speeds

    with tempfile.TemporaryDirectory() as place:
        shards_at, run = learning.made(place), f"{place}/train"
        settings = [f"data.shards={shards_at}", f"output={run}", "log.tensorboard=false"]
        command = [sys.executable, "-m", "corpusmill", "train", CONFIG]
        command += [word for one in settings for word in ("--set", one)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
        config, _ = open_run(run)
        world, shards = join(config), open_run_data(config)
        before = load_model(config, newest_checkpoint(Folder(run)), shards.set.vocab_size, world.device)
        ways: list[tuple[str, Callable[[Decoder], None]]] = [
            ("int8, ours", ours("int8", config, shards)),
            ("int8, torchao", lambda model: torchao(model, 8)),
            (f"int4 in groups of {GROUP}, ours", ours("int4", config, shards)),
            (f"int4 in groups of {GROUP}, torchao", lambda model: torchao(model, 4)),
            (f"GPTQ, int4 in groups of {GROUP}, ours", ours("gptq", config, shards)),
            (f"AWQ, int4 in groups of {GROUP}, ours", ours("awq", config, shards)),
        ]
        models = [before]
        for _, change in ways:
            models.append(copy.deepcopy(before))
            change(models[-1])
        speed = speeds(models, config, shards)
        tokens = torch.arange(1, 1 + config.data.sequence_length)[None]
        with torch.inference_mode():
            logits = [model(tokens) for model in models]
        weights = sum(value.numel() for value in matrices(before).values())
        print(
            f"{weights:,} weights in matrices, trained on the quick start's corpus; torchao {version('torchao')}; tokens/s of a forward"
            " pass, medians of rounds in which all models take turns, as a share of the model before.\n"
        )
        print("| | bits per byte more | KL, nats a token | largest logit difference | tokens/s |")
        print("|---|---:|---:|---:|---:|")
        for number, (name, _) in enumerate(ways, 1):
            found = changes(before, models[number], config, shards, world)
            more = mean_of([one.difference for one in found.values()])
            apart = sum(one.divergence.value for one in found.values()) / len(found)
            assert more is not None
            print(
                f"| {name} | {more.value:+.5f} ({more.low:+.5f} to {more.high:+.5f}) | {apart:.2e} |"
                f" {(logits[number] - logits[0]).abs().max():.4f} | {speed[number] / speed[0]:.2f} |"
            )


if __name__ == "__main__":
    main()
