"""The trainer as its benches drive it: a state of any size without a run's folder, and batches that lie in memory."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from train.distributed import World
from train.model import decoder
from train.model.decoder import Decoder
from train.model.losses import token_losses
from train.optim import make_optimizer
from train.step import TrainState

if TYPE_CHECKING:
    from schemas.training import TrainConfig


def make_state(
    model: dict[str, Any], vocabulary: int, *, rows: int, micro: int, length: int, device: str = "cpu",
    optimizer: dict[str, Any] | None = None, sources: int = 1, **settings: Any,
) -> TrainState:  # fmt: skip
    """What `train.trainer` puts together for a config, on one device: steps of `rows` sequences of `length` tokens."""
    from schemas.training import TrainConfig

    config = TrainConfig.model_validate(
        {
            "name": "bench", "model": model, "optimizer": optimizer or {}, "schedule": {"steps": 10_000}, "precision": "fp32",
            "data": {"shards": "-", "sequence_length": length, "global_batch": rows, "micro_batch": micro}, **settings,
        }
    )  # fmt: skip
    place = torch.device(device)
    made = _model(config, vocabulary, place)
    window = torch.zeros(sources, 2, dtype=torch.float64, device=place)
    return TrainState(config, made, make_optimizer(made, config.optimizer), window, place)


def _model(config: TrainConfig, vocabulary: int, place: torch.device) -> Any:
    if find_spec("train.parallel"):
        from train.parallel import build

        return build(config, vocabulary, World(device=place))
    with place:
        return Decoder(config.model, vocabulary, config.seed)


def whole(state: TrainState) -> Decoder:
    """The decoder, which is all in this process."""
    return getattr(state.model, "parts", [state.model])[0]


def prepare(state: TrainState, backend: str) -> None:
    """fp8 if the config says so, then `torch.compile` ("" for none) of each layer and of the loss with the head, whose
    float32 logits are then never written. Raises `UserError` for what this device cannot do."""
    model, config = whole(state), state.config
    if find_spec("train.precision"):
        from train.precision.adapt import adapt

        adapt(model, config.model_copy(update={"compile": backend == "inductor"}), state.device)
    if backend and not (find_spec("train.precision") and backend == "inductor"):
        for layer in model.layers.children():
            layer.compile(backend=backend, dynamic=False)
    compiled = torch.compile(token_losses, backend=backend, dynamic=False) if backend else token_losses
    decoder.token_losses = compiled  # type: ignore[assignment]


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
