"""A model of 5 M parameters that saw 20 tokens for each of them, and what the ways to make it smaller change of it. It takes hours on
few cores, so that it is trained in a folder that stays, and what was found is kept."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench import natural
from bench._compress_ways import compared, explained, table
from corpusmill.common.storage import Folder

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "bench/compress_5m.json"
CONFIG = "configs/train/5m.yaml"
RECIPE = """\
name: real
output: {folder}/run
sources:
{sources}
filter:
  skip_sources: {{{skipped}}}
split: {{validation_share: 0.02}}
tokenizer: {{vocab_size: 8192}}
"""


def measure(folder: Path, *more: str) -> None:
    """Make the corpus, train and compare, each unless it is done, and keep what is found. `more`: further settings of the training."""
    if not natural.available():
        sys.exit(f"{natural.DATA}: the real text that the model is trained on is not there")
    folder = folder.resolve()
    recipe = written(folder)
    _corpusmill("run", str(recipe))
    settings = [
        f"data.shards={folder}/run/shards",
        f"output={folder}/train",
        "schedule.steps=6200",  # 20 tokens for each parameter
        "model.qk_norm=false",  # as in compress.py
        "precision=auto",
        *more,
    ]
    _corpusmill("train", CONFIG, *(word for one in settings for word in ("--set", one)))
    found, result = compared(f"{folder}/train"), json.loads((folder / "train/result.json").read_text("utf-8"))
    kept = {
        "when": time.strftime("%Y-%m-%d", time.gmtime()), "torchao": version("torchao"), "weights": found.weights,
        "precision": found.config.precision,
        **{name: result[name] for name in ("parameters", "tokens")}, "rows": found.rows,
    }  # fmt: skip
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines()))


def lines() -> list[str]:
    """What is kept, as Markdown."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return [
        f"Measured on {kept['when']} (`python -m bench compress --trained FOLDER`, kept in `bench/{KEPT.name}`): `{CONFIG}`, trained"
        f" in {kept['precision']} on {kept['tokens'] / 1e6:.0f} M tokens of real text, {kept['tokens'] / kept['parameters']:.1f} for each of its"
        f" {kept['parameters']:,} parameters. {kept['weights']:,} weights in matrices; {explained(kept['torchao'])}\n",
        table(kept["rows"]),
    ]


def written(folder: Path) -> Path:
    """The real text as a file of JSON lines for each source, and a recipe that reads them."""
    names = natural.sources()
    for name, read in names.items():
        file = Folder(folder) / f"text/{name}.jsonl"
        if not file.exists():
            rows = (json.dumps({"id": str(number), "text": text}) for number, text in enumerate(read()))
            file.write(("\n".join(rows) + "\n").encode())  # whole or not at all
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        RECIPE.format(
            folder=folder,
            sources="\n".join(f"  {name}: {{paths: [{folder}/text/{name}.jsonl]}}" for name in names),
            # Quality of a text is not what is measured: all of it is trained on, but for what is broken.
            skipped=", ".join(
                f"{name}: [gopher_repetition, gopher_quality, c4, fineweb, quality]" for name in names
            ),
        ),
        encoding="utf-8",
    )
    return recipe


def _corpusmill(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "corpusmill", *words], check=True, cwd=ROOT, stdout=sys.stderr)
