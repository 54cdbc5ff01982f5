"""Weight-only quantisation of the quick start's model: ours (`corpusmill compress`) beside torchao's, on the same matrices of the same
trained model and the same validation text, in float32.

The matrices of attention and feed-forward are quantised, as `corpusmill compress` does; torchao keeps codes and computes with them
(`Int8WeightOnlyConfig`; `IntxWeightOnlyConfig` with int4 in groups, since its packed int4 has no kernel for this processor), ours
stores the values that the codes stand for. Bits per byte are means over sources, with the interval of the difference paired by
document. Then pruning by magnitude and by Wanda, and a small student that learns from the model's distributions beside one that learns
from the text alone, at equal tokens over seeds; and GGUF files as transformers reads them. The model has no norms of queries and keys,
since transformers takes another size of heads for GGUF files of models that do.

A model with more tokens behind it loses more: `python -m bench compress --trained FOLDER` measures the same ways on one of 5 M parameters
with 20 tokens for each, and its table is printed here from then on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import _compress_trained as trained
from bench import learning
from bench._compress_ways import compared, explained, table
from bench.learning import STUDENT
from bench.peers import HARNESS, packages

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/train/quickstart.yaml"
SEEDS, STEPS = (1, 2, 3), 400


def main() -> None:
    """Print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench compress", description=__doc__)
    parser.add_argument(
        "--trained",
        type=Path,
        metavar="FOLDER",
        help="instead: train configs/train/5m.yaml in FOLDER (hours; the same command resumes it), and keep what is found of it in"
        f" {trained.KEPT.relative_to(ROOT)}",
    )
    given = parser.parse_args()
    if given.trained is not None:
        trained.measure(given.trained)
        return
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
        found = compared(run)
        print(
            f"{found.weights:,} weights in matrices, trained on the quick start's corpus; {explained(version('torchao'))}\n\n{table(found.rows)}"
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
            f"\nGGUF, read by {HARNESS.requirements[1].replace('==', ' ')} (largest logit {found.logits.abs().max():.2f}):\n"
        )
        print("| type | MB | largest logit difference |")
        print("|---|---:|---:|")
        print("\n".join(gguf_table(place, run, found.config.data.sequence_length, found.logits[0])))
    if trained.KEPT.exists():
        print("\n" + "\n".join(trained.lines()))


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
        f"schedule.steps={STEPS}", f"schedule.warmup_steps={STEPS // 10}", "checkpoint.every=1000",
        f"validation.every={STEPS}", *([f"distillation.teacher={teacher}"] if teacher else []),
    ]  # fmt: skip
    command = [sys.executable, "-m", "corpusmill", "train", CONFIG]
    subprocess.run(
        [*command, *(word for one in settings for word in ("--set", one))],
        check=True, cwd=ROOT, stdout=sys.stderr,
    )  # fmt: skip
    losses = json.loads(Path(output, "result.json").read_text(encoding="utf-8"))["validation"].values()
    return float(statistics.mean(losses))


if __name__ == "__main__":
    main()
