"""Weight-only quantisation and pruning by `corpusmill compress` beside torchao's quantisation, on the same matrices of the same model and
the same validation text, in float32.

The matrices of attention and feed-forward are quantised; torchao keeps codes and computes with them (`Int8WeightOnlyConfig`;
`IntxWeightOnlyConfig` with int4 in groups, since its packed int4 has no kernel for this processor), ours stores the values that the
codes stand for. Bits per byte are means over sources, with the interval of the difference paired by document. Two models: one of 15 M
parameters that was trained for long, and the quick start's, which has more to spare, without norms of queries and keys, since
transformers takes another size of heads for GGUF files of models that have them. GGUF files are read by transformers. A small student
learns from the quick start's model beside one that learns from the text alone, at equal tokens over seeds.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import _compress_stories as stories
from bench import learning
from bench._compress_ways import compared, explained, table
from bench.learning import STUDENT
from bench.peers import HARNESS, NotMeasured, packages

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/train/quickstart.yaml"
SEEDS, STEPS = (1, 2, 3), 400


def main() -> None:
    """Print Markdown."""
    print(explained(version("torchao")))
    with tempfile.TemporaryDirectory() as place:
        print("\n### A model trained for long\n")
        try:
            run, about = stories.made(Path(place))
        except NotMeasured as reason:
            print(f"Not measured: {reason}")
        else:
            print("\n".join([about, "", *of_run(run)]))
    with tempfile.TemporaryDirectory() as place:
        shards, run = learning.made(place), f"{place}/train"
        train(run, shards)
        print("\n### The quick start's model\n")
        print("\n".join([*of_run(run), "", *students(place, shards, run)]))


def of_run(run: str) -> Iterator[str]:
    """What is found of a run's model, as Markdown."""
    found = compared(run)
    before = ", ".join(f"{name} {value:.3f}" for name, value in found.before.items())
    yield f"{found.weights:,} weights in matrices; bits per byte before: {before}.\n"
    yield table(found.rows)
    reader = HARNESS.requirements[1].replace("==", " ")
    yield f"\nGGUF, read by {reader} (largest logit {found.logits.abs().max():.2f}):\n"
    yield "| type | MB | largest logit difference |\n|---|---:|---:|"
    yield from gguf_table(run, found.config.data.sequence_length, found.logits[0])


def students(place: str, shards: str, teacher: str) -> Iterator[str]:
    """Losses of students of the text and of a model, as Markdown."""
    yield (
        f"A student of one layer of 64 channels, {STEPS} steps on the same tokens, learning from the text (cross entropy) or from that"
        f" model's distributions (`distillation`): mean loss of validation over sources, nats a token; {len(SEEDS)} seeds, the"
        " difference paired by seed with Student's 95 % interval.\n"
    )
    yield "| seed | text | model | difference |\n|---|---:|---:|---:|"
    apart = []
    for seed in SEEDS:
        plain, taught = (student(place, shards, seed, one) for one in ("", teacher))
        apart.append(taught - plain)
        yield f"| {seed} | {plain:.4f} | {taught:.4f} | {apart[-1]:+.4f} |"
    mean = statistics.mean(apart)
    wide = STUDENT[len(SEEDS) - 1] * statistics.stdev(apart) / math.sqrt(len(SEEDS))
    yield f"| mean | | | {mean:+.4f} ({mean - wide:+.4f} to {mean + wide:+.4f}) |"


def student(place: str, shards: str, seed: int, teacher: str) -> float:
    """The loss of a small model after training; `teacher`: a run whose distributions it learns from, "" for the text."""
    output = f"{place}/student-{seed}-{'taught' if teacher else 'plain'}"
    train(
        output, shards, f"seed={seed}", "model.dim=64", "model.layers=1", f"schedule.steps={STEPS}",
        f"schedule.warmup_steps={STEPS // 10}", "checkpoint.every=1000", f"validation.every={STEPS}",
        *([f"distillation.teacher={teacher}"] if teacher else []),
    )  # fmt: skip
    losses = json.loads(Path(output, "result.json").read_text(encoding="utf-8"))["validation"].values()
    return float(statistics.mean(losses))


def train(output: str, shards: str, *more: str) -> None:
    """`corpusmill train` on the quick start's config with further settings."""
    settings = [
        f"data.shards={shards}",
        f"output={output}",
        "log.tensorboard=false",
        "model.qk_norm=false",
        *more,
    ]
    command = [sys.executable, "-m", "corpusmill", "train", CONFIG]
    command += [word for one in settings for word in ("--set", one)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)


SCRIPT = """
import sys, json
sys.path.append(sys.argv[1])
import torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[2], gguf_file=sys.argv[3], dtype=torch.float32).eval()
with torch.no_grad():
    print(json.dumps(model(torch.arange(1, 1 + int(sys.argv[4]))[None]).logits[0].tolist()))
"""


def gguf_table(run: str, length: int, logits: Any) -> list[str]:
    """Logits of the files that we write, as transformers reads them, beside ours [T, V] before it was written."""
    import torch

    peer, lines = str(packages(HARNESS.name, HARNESS.requirements)), []
    for kind in ("f32", "f16", "q8_0", "q4_0"):
        file = Path(run, "gguf", f"{kind}.gguf")
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
            check=True, capture_output=True, text=True, cwd=run, env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        theirs = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
        apart = (theirs[:, : logits.shape[1]] - logits).abs().max()
        lines.append(f"| {kind} | {file.stat().st_size / 1e6:.2f} | {apart:.1e} |")
    return lines


if __name__ == "__main__":
    main()
