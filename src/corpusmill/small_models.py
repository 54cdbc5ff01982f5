"""Small models on the tokens of several tokenizers, at equal FLOPs: what `tokenizer compare --train` shows of them. It stands here
because it needs both packages, which do not know each other."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.schemas.tokenizer import Kind, SmallModel

if TYPE_CHECKING:
    from corpusmill.pipeline.tokenizer.compare.draw import Sample

LENGTH, BATCH = 128, 16  # tokens of a sequence, sequences of a step
MODEL: dict[str, Any] = {
    "dim": 128, "layers": 2, "heads": 2, "qk_norm": True, "tie_embeddings": False, "loss_chunk": 512
}  # fmt: skip
WARM_UP = 0.08  # of the steps
# As in the quick start's config.
OPTIMIZER = {"kind": "muon", "lr": 0.015, "muon_lr": 0.004, "betas": [0.7, 0.99], "weight_decay": 0.1}
TRAIN, HELD_OUT = "train", "held-out"  # sources


def small_models(
    sample: Sample,
    tokenizers: Mapping[Kind, bytes],
    flops: float,
    seed: int,
    folder: Path,
    quiet: bool = False,
) -> dict[Kind, SmallModel]:
    """Train a decoder of two layers with each tokenizer (the bytes of its `tokenizer.json`) on the texts that they were trained on,
    and score the held-out documents.

    Each is trained for the steps that cost `flops` FLOPs forward and backward, those of the head among them, which grow with the
    vocabulary; all else is the same: tokens of a step, width, depth, rates, seed. Shards and runs are left in `folder`. `quiet`: no
    progress on stderr. Raises `WorkError` where training fails.
    """
    import pyarrow as pa

    from corpusmill.common.hugging_face import DEFAULT_END
    from corpusmill.pipeline.api.stages import shard
    from corpusmill.pipeline.api.tokenizer import Tokenizer
    from corpusmill.train.api import evaluate, train

    held = sample.held_out["text"]
    documents = pa.table(
        {
            "text": pa.chunked_array([*sample.train.chunks, *held.chunks], pa.large_string()),
            "source": [TRAIN] * len(sample.train) + [HELD_OUT] * len(held),
        }
    )
    split = {"per_source": {TRAIN: {"only": "train"}, HELD_OUT: {"only": "validation"}}}
    found: dict[Kind, SmallModel] = {}
    for kind, data in tokenizers.items():
        place = folder / kind
        shards = shard(documents, place / "shards", Tokenizer(data, DEFAULT_END, kind), split=split)
        each = flops_per_step(int(shards.index_json["vocab_size"]))
        steps = max(1, round(flops / each))
        config = {
            "name": kind, "output": str(place / "run"), "seed": seed, "model": MODEL, "optimizer": OPTIMIZER,
            "data": {
                "shards": shards.url, "weights": {TRAIN: 1.0}, "sequence_length": LENGTH, "global_batch": BATCH,
                "micro_batch": BATCH,
            },
            "schedule": {
                "steps": steps, "warmup_steps": int(WARM_UP * steps), "kind": "wsd", "decay_share": 0.9
            },
            "precision": "auto", "checkpoint": {"every": steps, "keep_last": 1}, "validation": {"every": steps},
            "log": {"every": max(1, steps // 20), "tensorboard": False},
        }  # fmt: skip
        with contextlib.redirect_stderr(io.StringIO()) if quiet else contextlib.nullcontext():
            trained = train(config)
            scored = evaluate(place / "run", ngram_tokens=0)["all_sources"]
        interval = scored["interval"] or {}
        found[kind] = SmallModel(
            bits_per_byte=round(scored["bits_per_byte"], 4), low=interval.get("low"), high=interval.get("high"),
            steps=steps, tokens=trained["tokens"], parameters=trained["parameters"], flops=steps * each,
            times=round(trained["tokens"] / max(1, _tokens(shards.index_json)), 3),
        )  # fmt: skip
    return found


def flops_per_step(vocab_size: int) -> float:
    """FLOPs of a step of the model with such a vocabulary."""
    import torch

    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.decoder import Decoder

    with torch.device("meta"):
        model = Decoder(ModelConfig.model_validate(MODEL), vocab_size)
    return model.flops_per_token(LENGTH) * LENGTH * BATCH


def _tokens(index: Mapping[str, Any]) -> int:
    """Tokens to train on, of a shard set's list."""
    return sum(int(entry["ntokens"]) for entry in index["sets"] if entry["split"] == "train")
