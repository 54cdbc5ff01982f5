"""Checkpoints: taken only if every byte is as published, counted only if valid, made of names and not of places."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from schemas.errors import WorkError
from schemas.model import ModelConfig
from schemas.optim import OptimizerConfig
from schemas.storage import Folder
from schemas.training import TrainConfig
from train import checkpoint
from train.checkpoint import MODEL, OPTIMIZER, STATE
from train.model.decoder import Decoder
from train.optim import make_optimizer

SMALL = ModelConfig(dim=16, layers=1, heads=2, ffn_dim=16)


def trained(seed: int = 0, config: ModelConfig = SMALL) -> tuple[Decoder, torch.optim.AdamW]:
    model = Decoder(config, 20, seed)
    optimizer = make_optimizer(model, OptimizerConfig())
    model(torch.arange(20)[None]).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "run")
    for step in (1, 2, 3):
        checkpoint.save(folder, step, *trained(step), {"n": step})
    return folder


def place(run: Folder, step: int, name: str) -> Path:
    return Path(run.url) / f"checkpoints/step-{step:06d}" / name


def test_what_is_saved_comes_back(run: Folder) -> None:
    found = checkpoint.load_newest(run)
    assert found is not None and found.step == 3 and found.state == {"n": 3}
    (wanted, moments), (model, optimizer) = trained(3), trained(9)
    checkpoint.restore(found, model, optimizer)
    for (name, a), b in zip(wanted.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b), name
        for moment in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.equal(moments.state[a][moment], optimizer.state[b][moment]), (name, moment)
    assert len(checkpoint.load_step(run, 2).tensors(OPTIMIZER)) == 3 * len(list(model.parameters()))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("harm", [Path.unlink, cut, flip])
@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE, "manifest.json"])
def test_a_harmed_checkpoint_is_never_taken(run: Folder, harm: Callable[[Path], None], name: str) -> None:
    harm(place(run, 3, name))
    refused: list[str] = []
    found = checkpoint.load_newest(run, refused)
    assert found is not None and found.step == 2
    assert len(refused) == 1 and "step-000003: not taken" in refused[0]


def test_a_manifest_that_lacks_tensors_is_refused(run: Folder) -> None:
    file = place(run, 3, "manifest.json")
    file.write_text(file.read_text().replace('"model.safetensors": 11', '"model.safetensors": 12'))
    assert "11" in place(run, 2, "manifest.json").read_text()
    found = checkpoint.load_newest(run)
    assert found is not None and found.step == 2


def test_keep_last_counts_valid_ones_only(run: Folder) -> None:
    place(run, 3, "manifest.json").unlink()
    place(run, 4, "x").parent.mkdir()
    place(run, 4, MODEL).write_bytes(b"half")
    assert checkpoint.prune(run, 2) == []  # 3 and 4 are no checkpoints: 1 and 2 stay
    place(run, 1, OPTIMIZER).unlink()
    assert checkpoint.prune(run, 2) == [1]  # older than the newest valid one, and of no use
    checkpoint.save(run, 5, *trained(), {})
    assert checkpoint.prune(run, 2) == [3, 4]
    checkpoint.save(run, 6, *trained(), {})
    assert checkpoint.prune(run, 2) == [2]
    assert sorted(p.name for p in (Path(run.url) / "checkpoints").iterdir()) == ["step-000005", "step-000006"]


def test_saving_over_an_invalid_one_does_not_trust_its_manifest(
    run: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(place(run, 3, MODEL))
    write = Folder.write

    def dying(self: Folder, data: bytes) -> None:
        if self.name == STATE:
            raise KeyboardInterrupt
        write(self, data)

    monkeypatch.setattr(Folder, "write", dying)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(run, 3, *trained(4), {"n": 3})
    assert not place(run, 3, "manifest.json").exists()


def test_another_model_is_refused_by_tensor(run: Folder) -> None:
    found = checkpoint.load_newest(run)
    assert found is not None
    wide, _ = trained(config=SMALL.model_copy(update={"ffn_dim": 24}))
    with pytest.raises(
        WorkError, match=r"layers\.0\.ffn\.gate\.weight is \(16, 16\), this model has \(24, 16\)"
    ):
        checkpoint.restore(found, wide)
    deep, optimizer = trained(config=SMALL.model_copy(update={"layers": 2}))
    with pytest.raises(WorkError, match=r"layers\.1\.\S+ is absent"):
        checkpoint.restore(found, deep, optimizer)


@pytest.mark.s3
def test_training_from_and_to_object_storage(
    s3: str, shards: Folder, config: Callable[..., Any], tmp_path: Path
) -> None:
    from train.metrics import read_metrics
    from train.trainer import train

    for entry in shards.list():
        (Folder(s3) / "shards" / entry.path).write((shards / entry.path).read())
    settings = {"schedule.steps": 8, "checkpoint.every": 3, "checkpoint.keep_last": 1}
    local = train(TrainConfig.model_validate(config(**settings)))
    there = config(**settings, **{"data.shards": f"{s3}/shards", "output": f"{s3}/run"})
    remote = train(TrainConfig.model_validate(there))
    assert remote["weights_xxh3"] == local["weights_xxh3"]
    names = {entry.path.split("/")[0] for entry in (Folder(s3) / "run/checkpoints").list()}
    assert names == {"step-000008"}
    losses = [row["loss"] for row in read_metrics(Folder(s3) / "run")]
    assert losses == [row["loss"] for row in read_metrics(Folder(tmp_path / "run"))] and len(losses) == 8
