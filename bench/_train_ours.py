"""The trainer as its benches drive it: a state of any size without a run's folder, and batches that lie in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import build
from corpusmill.train.step import TrainState


def make_state(
    model: dict[str, Any], vocabulary: int, *, rows: int, micro: int, length: int, device: str = "cpu",
    optimizer: dict[str, Any] | None = None, sources: int = 1, **settings: Any,
) -> TrainState:  # fmt: skip
    """What `corpusmill.train.trainer` puts together for a config, on one device: steps of `rows` sequences of `length` tokens.
    Raises `UserError` for what the device cannot do."""
    from corpusmill.schemas.training import TrainConfig

    config = TrainConfig.model_validate(
        {
            "name": "bench", "model": model, "optimizer": optimizer or {}, "schedule": {"steps": 10_000}, "precision": "fp32",
            "data": {"shards": "-", "sequence_length": length, "global_batch": rows, "micro_batch": micro}, **settings,
        }
    )  # fmt: skip
    place = torch.device(device)
    made = build(config, vocabulary, World(device=place))
    window = torch.zeros(sources, 2, dtype=torch.float64, device=place)
    return TrainState(config, made, make_optimizer(made, config.optimizer), window, place)


def whole(state: TrainState) -> Decoder:
    """The decoder, which is all in this process."""
    return state.model.parts[0]


def memory_batch(
    rows: int, length: int, vocabulary: int, *, number: int, device: str = "cpu"
) -> dict[str, Tensor]:
    """A global batch of random tokens, each row one document; tokens and labels on the device, what the host reads not."""
    made = torch.Generator().manual_seed(number)
    both = torch.randint(1, vocabulary, (rows, length + 1), generator=made).to(device)
    return {
        "tokens": both[:, :-1], "labels": both[:, 1:], "documents": torch.zeros(rows, length, dtype=torch.int32),
        "positions": torch.arange(length, dtype=torch.int32).expand(rows, -1),
        "source_id": torch.zeros(rows, dtype=torch.int64), "n": torch.arange(rows) + number * rows,
    }  # fmt: skip
