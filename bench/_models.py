"""Runs of models whose weights do not matter, since time does not depend on them: one step of training on the quick start's corpus."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "configs/train/quickstart.yaml"
CONTEXT = 512
SHAPES: dict[str, list[str]] = {
    "the quick start's model": [],
    "30 M parameters": ["model.dim=512", "model.layers=7", "model.heads=8", "model.ffn_dim=1408"],
}


def make(folder: Path, shards: str, shape: str) -> Path:
    """The folder of a run of this shape with contexts of `CONTEXT` tokens, in fp32."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.trainer import train

    output = folder / "-".join(shape.replace("'", "").split())
    settings = [
        f"data.shards={shards}", f"output={output}", f"data.sequence_length={CONTEXT}", "data.global_batch=1", "data.micro_batch=1",
        "schedule.steps=2", "schedule.warmup_steps=1", "schedule.decay_share=0.5", "validation.every=null", "log.tensorboard=false", "precision=fp32",
        *SHAPES[shape],
    ]  # fmt: skip
    found = train(load(TrainConfig, ROOT / CONFIG, settings))
    print(f"  {shape}: {found['parameters']:,} parameters", file=sys.stderr)
    return output


def parameters(run: Path) -> int:
    import json

    return int(json.loads((run / "result.json").read_text())["parameters"])
