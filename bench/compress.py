"""Weight-only quantisation of the quick start's model: ours (`corpusmill compress`) beside torchao's, on the same matrices of the same
trained model and the same validation text, in float32.

The matrices of attention and feed-forward are quantised, as `corpusmill compress` does; torchao keeps codes and computes with them
(`Int8WeightOnlyConfig`; `IntxWeightOnlyConfig` with int4 in groups, since its packed int4 has no kernel for this processor), ours
stores the values that the codes stand for. Bits per byte are means over sources, with the interval of the difference paired by
document. Then pruning by magnitude and by Wanda, and a small student that learns from the model's distributions beside one that learns
from the text alone, at equal tokens over seeds; and GGUF files as transformers reads them. The model has no norms of queries and keys,
since transformers takes another size of heads for GGUF files of models that do.
"""

from __future__ import annotations

import copy
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import learning
from bench.learning import STUDENT
from bench.peers import HARNESS, packages

if TYPE_CHECKING:
    from corpusmill.train.model.decoder import Decoder

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/train/quickstart.yaml"
GROUP = 32
SEEDS, STEPS = (1, 2, 3), 400


class Way(NamedTuple):
    """A change of a model in place; `beside`: the plain way of its kind, to be better than."""

    name: str
    change: Callable[[Decoder], None]
    beside: str = ""


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
        settings = [
            f"data.shards={shards_at}",
            f"output={run}",
            "log.tensorboard=false",
            "model.qk_norm=false",
        ]
        command = [sys.executable, "-m", "corpusmill", "train", CONFIG]
        command += [word for one in settings for word in ("--set", one)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
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
        weights = sum(value.numel() for value in matrices(before).values())
        print(
            f"{weights:,} weights in matrices, trained on the quick start's corpus; torchao {version('torchao')}; tokens/s of a forward"
            " pass, medians of rounds in which all models take turns, as a share of the model before. Better: sources with fewer bits per"
            " byte than the plain method of that kind (int4, magnitude) leaves.\n"
        )
        print("| | bits per byte more | better | KL, nats a token | largest logit difference | tokens/s |")
        print("|---|---:|---:|---:|---:|---:|")
        after: dict[str, dict[str, float]] = {}
        for number, way in enumerate(ways, 1):
            found = changes(before, models[number], config, shards, world)
            after[way.name] = {name: one.difference.value for name, one in found.items() if one.difference}
            more = mean_of([one.difference for one in found.values()])
            apart = sum(one.divergence.value for one in found.values()) / len(found)
            assert more is not None
            plain = after.get(way.beside)
            better = ""
            if plain is not None:
                better = (
                    f"{sum(value <= plain[name] for name, value in after[way.name].items())} of {len(plain)}"
                )
            print(
                f"| {way.name} | {more.value:+.5f} ({more.low:+.5f} to {more.high:+.5f}) | {better} | {apart:.2e} |"
                f" {(logits[number] - logits[0]).abs().max():.4f} | {speed[number] / speed[0]:.2f} |"
            )
        print(
            f"\nA student of one layer of 64 channels, {STEPS} steps on the same tokens, learning from the text (cross entropy) or from that"
            f" model's distributions (`distillation`): mean loss of validation over sources, nats a token; {len(SEEDS)} seeds, the"
            " difference paired by seed with Student's 95 % interval.\n"
        )
        print("| seed | text | model | difference |")
        print("|---|---:|---:|---:|")
        apart_by_seed = []
        for seed in SEEDS:
            plain_loss, taught = (student(place, shards_at, seed, one) for one in ("", run))
            apart_by_seed.append(taught - plain_loss)
            print(f"| {seed} | {plain_loss:.4f} | {taught:.4f} | {apart_by_seed[-1]:+.4f} |")
        mean = statistics.mean(apart_by_seed)
        wide = STUDENT[len(SEEDS) - 1] * statistics.stdev(apart_by_seed) / math.sqrt(len(SEEDS))
        print(f"| mean | | | {mean:+.4f} ({mean - wide:+.4f} to {mean + wide:+.4f}) |")
        print(
            f"\nGGUF, read by {HARNESS.requirements[1].replace('==', ' ')} (largest logit {logits[0].abs().max():.2f}):\n"
        )
        print("| type | MB | largest logit difference |")
        print("|---|---:|---:|")
        print("\n".join(gguf_table(place, run, config.data.sequence_length, logits[0][0])))


SCRIPT = """
import sys, json
sys.path.append(sys.argv[1])
import torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[2], gguf_file=sys.argv[3], dtype=torch.float32).eval()
with torch.no_grad():
    print(json.dumps(model(torch.arange(1, 1 + int(sys.argv[4]))[None]).logits[0].tolist()))
"""


def gguf_table(place: str, run: str, length: int, logits: Any) -> list[str]:
    """Logits of the files that we write, as transformers reads them, beside ours [T, V] before it was written."""
    import torch

    peer, lines = str(packages(HARNESS.name, HARNESS.requirements)), []
    for kind in ("f32", "f16", "q8_0", "q4_0"):
        file = Path(place, "gguf", f"{kind}.gguf")
        file.parent.mkdir(exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "corpusmill",
            "export",
            run,
            str(file),
            "--format",
            "gguf",
            "--type",
            kind,
        ]
        subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, peer, str(file.parent), file.name, str(length)],
            check=True, capture_output=True, text=True, cwd=place, env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        theirs = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
        apart = (theirs[:, : logits.shape[1]] - logits).abs().max()
        lines.append(f"| {kind} | {file.stat().st_size / 1e6:.2f} | {apart:.1e} |")
    return lines


def student(place: str, shards: str, seed: int, teacher: str) -> float:
    """The loss of a small model after training; `teacher`: a run whose distributions it learns from, "" for the text."""
    output = f"{place}/student-{seed}-{'taught' if teacher else 'plain'}"
    settings = [
        f"data.shards={shards}", f"output={output}", f"seed={seed}", "log.tensorboard=false", "model.qk_norm=false",
        "model.dim=64", "model.layers=1",
        f"schedule.steps={STEPS}", "checkpoint.every=1000",
        f"validation.every={STEPS}", *([f"distillation.teacher={teacher}"] if teacher else []),
    ]  # fmt: skip
    command = [sys.executable, "-m", "corpusmill", "train", CONFIG]
    subprocess.run(
        [*command, *(word for one in settings for word in ("--set", one))],
        check=True, cwd=ROOT, stdout=sys.stderr,
    )  # fmt: skip
    losses = json.loads(Path(output, "result.json").read_text(encoding="utf-8"))["validation"].values()
    return statistics.mean(losses)


if __name__ == "__main__":
    main()
