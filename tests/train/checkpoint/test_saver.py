"""Saved while training continues: the state at the call, whatever happens after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import CheckpointConfig, TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.trainer import train
from tests.train.checkpoint.test_store import there, trained


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Writing of tensors waits until it is set."""
    opened, create = threading.Event(), Folder.create

    @contextmanager
    def slow(self: Folder) -> Iterator[Any]:
        assert opened.wait(60)
        with create(self) as out:
            yield out

    monkeypatch.setattr(Folder, "create", slow)
    yield opened
    opened.set()


def hashes(run: Folder, step: int) -> dict[str, str]:
    return {file.path: file.xxh3 for file in checkpoint.load_step(run, step).manifest.files}


def step(model: Any, optimizer: Any) -> None:
    model(torch.arange(20)[None]).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_what_is_written_is_what_was_there(tmp_path: Path, gate: threading.Event) -> None:
    model, optimizer = trained()
    saver = checkpoint.Saver(Folder(tmp_path / "behind"), CheckpointConfig())
    saver.save(1, checkpoint.live(model, optimizer), {"n": 1})
    assert not saver.under_way.done()  # type: ignore[union-attr]
    for _ in range(3):
        step(model, optimizer)  # while it waits
    assert list(checkpoint.steps(Folder(tmp_path / "behind"))) == []
    gate.set()
    saver.save(2, checkpoint.live(model, optimizer), {"n": 2})  # into the memory of the first
    step(model, optimizer)
    saver.wait()
    saver.close()
    model, optimizer = trained()
    inline = checkpoint.Saver(Folder(tmp_path / "inline"), CheckpointConfig(asynchronous=False))
    inline.save(1, checkpoint.live(model, optimizer), {"n": 1})
    for _ in range(3):
        step(model, optimizer)
    inline.save(2, checkpoint.live(model, optimizer), {"n": 2})
    for number in (1, 2):
        assert hashes(Folder(tmp_path / "behind"), number) == hashes(Folder(tmp_path / "inline"), number)


def test_memory_is_used_again(tmp_path: Path) -> None:
    model, optimizer = trained()
    saver = checkpoint.Saver(Folder(tmp_path), CheckpointConfig())
    places = []
    for number in (1, 2):
        saver.save(number, checkpoint.live(model, optimizer), {})
        places.append({name: tensor.data_ptr() for name, tensor in saver.staged.items()})
    saver.wait()
    assert places[0] == places[1] and len(places[0]) == 44
    live = {piece.local.data_ptr() for piece in checkpoint.live(model, optimizer).values()}
    assert not live & set(places[0].values())


def test_an_error_behind_stops_the_run(
    config: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Folder) -> Any:
        raise WorkError(f"{self.url}: cannot write: no space left")

    monkeypatch.setattr(Folder, "create", full)
    with pytest.raises(WorkError, match=r"step-000003/model.safetensors: cannot write: no space left$"):
        train(TrainConfig.model_validate(config(**{"checkpoint.every": 3, "schedule.steps": 100_000})))
    assert checkpoint.load_newest(Folder(tmp_path / "run")) is None


def test_training_is_the_same_with_and_without(config: Callable[..., Any], tmp_path: Path) -> None:
    found = []
    for asynchronous in (True, False):
        output = str(tmp_path / f"run-{asynchronous}")
        settings = {
            "checkpoint.every": 3,
            "checkpoint.asynchronous": asynchronous,
            "checkpoint.keep_every": 9,
        }
        train(TrainConfig.model_validate(config(**settings, output=output)))
        assert there(Folder(output)) == [9, 18, 20]
        found.append([hashes(Folder(output), number)["optimizer.safetensors"] for number in (9, 18, 20)])
    assert found[0] == found[1]
