"""What label smoothing, noise on embeddings and adversarial embeddings change in the example chat model: bits per byte of held-out
answers beside the plain run of the same seed.

Each setting is trained with three seeds on examples/chat, from a model that was pretrained on the quick start's corpus for a fifth of its
steps. Differences are means over seeds of what each seed's two runs differ by on the same documents; the interval is Student's t over seeds.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import learning
from bench.learning import STUDENT

ROOT = Path(__file__).resolve().parent.parent
SEEDS = (1, 2, 3)
SETTINGS: dict[str, dict[str, float]] = {
    "plain": {}, "label_smoothing 0.1": {"label_smoothing": 0.1}, "embedding_noise 5": {"embedding_noise": 5.0},
    "adversarial 0.5": {"adversarial": 0.5},
}  # fmt: skip
STEPS = 150


def corpusmill(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "corpusmill", *arguments], cwd=ROOT, capture_output=True, text=True
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


def tuned(base: str, output: Path, seed: int, settings: dict[str, float]) -> dict[str, Any]:
    """Bits per byte of the held-out answers, and seconds of training."""
    given = [
        f"init_from={base}", f"output={output}", f"seed={seed}", f"schedule.steps={STEPS}", "checkpoint.every=1000",
        "data.conversations.validation_share=0.2", *([f"regularization={json.dumps(settings)}"] if settings else []),
    ]  # fmt: skip
    options = [part for one in given for part in ("--set", one)]
    result = json.loads(corpusmill("finetune", "configs/train/chat.yaml", *options, "--json"))
    found = json.loads(corpusmill("evaluate", str(output), "--ngram-tokens", "0", "--json"))
    return {"bits": found["all_sources"]["bits_per_byte"], "seconds": result["seconds"]}


def main() -> None:
    """Print Markdown."""
    with tempfile.TemporaryDirectory() as place:
        shards = learning.made(place)
        base = f"{place}/base"
        options = [
            f"data.shards={shards}",
            f"output={base}",
            "schedule.steps=200",
            "schedule.decay_share=0.5",
            "validation.every=null",
        ]
        corpusmill(
            "train", "configs/train/quickstart.yaml", *[part for one in options for part in ("--set", one)]
        )
        runs = {
            name: [tuned(base, Path(place) / f"{number}-{seed}", seed, settings) for seed in SEEDS]
            for number, (name, settings) in enumerate(SETTINGS.items())
        }
    print(
        f"{STEPS} steps of configs/train/chat.yaml, a fifth of its conversations held out; {len(SEEDS)} seeds.\n"
    )
    print("| regularization | bits a byte | less plain | 95 % | time of plain |")
    print("|---|---:|---:|---:|---:|")
    for name, found in runs.items():
        pairs = list(zip(found, runs["plain"], strict=True))
        apart = [one["bits"] - plain["bits"] for one, plain in pairs]
        mean, half = statistics.fmean(apart), 0.0
        if name != "plain":
            half = STUDENT[len(apart) - 1] * statistics.stdev(apart) / math.sqrt(len(apart))
        ends = "" if name == "plain" else f"{mean - half:+.4f} to {mean + half:+.4f}"
        shown = "" if name == "plain" else f"{mean:+.4f}"
        times = statistics.median(one["seconds"] / plain["seconds"] for one, plain in pairs)
        print(
            f"| {name} | {statistics.fmean(one['bits'] for one in found):.4f} | {shown} | {ends} | {times:.2f} |"
        )


if __name__ == "__main__":
    main()
