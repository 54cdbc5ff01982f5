"""Lightning: a stream, or a DataLoader over it, given to `Trainer.fit`; its checkpoints hold the state."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from corpusmill.common.storage import Folder
from tests.forks import launch
from tests.train.data.loops.parts import answers, flat, numbers, stream, use


def loops(foreign: str, shards: str, folder: str) -> None:
    """n of the batches by the kind of loader: five, and two after an interruption if it has a state; and of epochs of three."""
    use(foreign)
    import pytorch_lightning as lightning
    from torchdata.stateful_dataloader import StatefulDataLoader

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Bigram(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(96, 96)
            self.seen: list[Any] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            self.seen.append(batch["n"].tolist())
            logits = self.table(batch["tokens"]).transpose(1, 2)
            return torch.nn.functional.cross_entropy(logits, batch["labels"])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    def fit(loader: Any, start: str | None = None, save: str | None = None, **options: Any) -> list[Any]:
        model = Bigram()
        trainer = lightning.Trainer(
            accelerator="cpu", devices=world, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, **options,
        )  # fmt: skip
        trainer.fit(model, loader, ckpt_path=start, weights_only=False)
        if save:
            trainer.save_checkpoint(save)
        return model.seen

    if world > 1:
        part = stream(shards, dp_rank=rank, dp_world=world)
        print(json.dumps(fit(part, max_steps=2) + fit(DataLoader(part, batch_size=None), max_steps=2)))
        return
    found = {
        "loader": fit(DataLoader(stream(shards), batch_size=None), max_steps=5),
        "epochs": fit(stream(shards), limit_train_batches=3, max_epochs=2),
    }
    makes = {
        "stream": lambda: stream(shards),
        "stateful": lambda: StatefulDataLoader(stream(shards), batch_size=None),
        "sequences": lambda: StatefulDataLoader(stream(shards).sequences(), batch_size=8),
    }
    for name, make in makes.items():
        file = f"{folder}/{name}.ckpt"
        seen = fit(make(), save=file, max_steps=5, limit_train_batches=7)
        found[name] = seen + fit(make(), file, max_steps=7, limit_train_batches=7)
    print(json.dumps(found))


def test_fit(shards: Folder, foreign: str, tmp_path: Path) -> None:
    [found] = answers(launch(1, f"{__name__}:loops", foreign, shards.url, tmp_path))
    assert flat(found["loader"]) == numbers(0, 5)
    assert flat(found["epochs"]) == numbers(0, 6)  # an epoch of Lightning goes on where the one before ended
    for name in ("stream", "stateful", "sequences"):
        assert flat(found[name]) == numbers(0, 7), name


def test_two_processes(shards: Folder, foreign: str, tmp_path: Path) -> None:
    """Lightning divides no stream of batches; without a limit, it takes one more batch than it trains on."""
    ranks = answers(launch(2, f"{__name__}:loops", foreign, shards.url, tmp_path))
    both = flat(flat(step) for step in zip(*ranks, strict=True))
    assert both == [*numbers(0, 2), *numbers(3, 5)]
