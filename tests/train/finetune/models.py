"""Small models to start from, in the Hugging Face layout, with a tokenizer of bytes and the tokens of ChatML; and a run on them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from corpusmill.common.storage import Folder
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.architecture import architecture
from corpusmill.train.tools.hugging_face import write_weights
from tests.train.generate.models import BYTES, byte_tokenizer

MODEL: dict[str, Any] = {"dim": 32, "layers": 2, "heads": 4, "ffn_dim": 64, "vocab_multiple": 8}


def base_model(place: Path, seed: int = 1, **settings: Any) -> str:
    """A model with its first values."""
    config, folder = ModelConfig.model_validate({**MODEL, **settings}), Folder(place)
    made = architecture(config, config.padded(BYTES), 64)
    write_weights(folder, made, Decoder(config, BYTES, seed).state_dict(), torch.float32, 10**9)
    (folder / "tokenizer.json").write(byte_tokenizer().to_str().encode())
    (folder / "config.json").write(json.dumps({"architectures": [made.name], **made.config}).encode())
    return folder.url


def lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """A file of lines of JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def talk(*contents: str, system: str | None = None) -> dict[str, Any]:
    """A conversation of the user's and the assistant's messages in turn."""
    first = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return {"messages": [*first, *({"role": roles[n % 2], "content": c} for n, c in enumerate(contents))]}


def config_of(place: Path, data: str, start: str, **settings: Any) -> dict[str, Any]:
    """A run of a few seconds; `settings` by dotted key."""
    base: dict[str, Any] = {
        "name": "tuned", "output": str(place / "run"), "seed": 3, "init_from": start,
        "data": {
            "shards": data, "conversations": {"template": "chatml"}, "sequence_length": 64, "global_batch": 4,
            "micro_batch": 2, "prefetch": 2,
        },
        "model": dict(MODEL), "optimizer": {"lr": 3e-3, "weight_decay": 0.0},
        "schedule": {"steps": 12, "warmup_steps": 2}, "precision": "fp32", "checkpoint": {"every": 4, "keep_last": 3},
        "validation": {"every": 6, "tokens": 512}, "log": {"every": 2, "tensorboard": False}, "device": "cpu", "threads": 1,
    }  # fmt: skip
    for key, value in settings.items():
        place_of = base
        *parents, last = key.split(".")
        for parent in parents:
            place_of = place_of.setdefault(parent, {})
        place_of[last] = value
    return base
