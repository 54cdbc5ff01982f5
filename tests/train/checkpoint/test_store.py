"""Checkpoints: taken only if every byte is as published, counted only if valid, made of names and not of places."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.schemas.training import CheckpointConfig, TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.checkpoint import MODEL, OPTIMIZER, STATE
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer

SMALL = ModelConfig(dim=16, layers=1, heads=2, ffn_dim=16)


def trained(seed: int = 0, config: ModelConfig = SMALL) -> tuple[Decoder, torch.optim.AdamW]:
    model = Decoder(config, 20, seed)
    optimizer = make_optimizer(model, OptimizerConfig())
    model(torch.arange(20)[None]).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def saved(run: Folder, step: int, seed: int | None = None) -> None:
    checkpoint.save(run, step, checkpoint.live(*trained(step if seed is None else seed)), {"n": step})


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "run")
    for step in (1, 2, 3):
        saved(folder, step)
    return folder


def place(run: Folder, step: int, name: str) -> Path:
    return Path(run.url) / f"checkpoints/step-{step:06d}" / name


def there(run: Folder) -> list[int]:
    return [int(path.name[5:]) for path in sorted((Path(run.url) / "checkpoints").iterdir())]


def test_what_is_saved_comes_back(run: Folder) -> None:
    found = checkpoint.load_newest(run)
    assert found is not None and found.step == 3 and found.state == {"n": 3}
    (wanted, moments), (model, optimizer) = trained(3), trained(9)
    checkpoint.restore(found, model, optimizer)
    for (name, a), b in zip(wanted.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b), name
        for moment in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.equal(moments.state[a][moment], optimizer.state[b][moment]), (name, moment)
    earlier = checkpoint.load_step(run, 2)
    assert len(checkpoint.read_tensors(earlier, OPTIMIZER)) == 3 * len(list(model.parameters()))
    assert found.weights_xxh3 == checkpoint.open_step(run, 3).weights_xxh3 != earlier.weights_xxh3


def test_files_are_those_of_safetensors_and_json(run: Folder) -> None:
    found = checkpoint.load_step(run, 3)
    for part in (MODEL, OPTIMIZER):
        theirs = load_file(place(run, 3, f"{part}.safetensors"))
        ours = checkpoint.read_tensors(found, part)
        assert theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in ours)
    for name in ("tensors.json", "state.json", "manifest.json"):
        json.loads(place(run, 3, name).read_text())


@pytest.mark.parametrize("kind", ["adamw", "adafactor", "muon", "sgd"])
def test_before_the_first_step_the_optimizer_is_saved_as_it_begins(tmp_path: Path, kind: Any) -> None:
    """As when the first steps of a run are all skipped: a checkpoint without states could not be restored."""
    config = OptimizerConfig(kind=kind)
    model = Decoder(SMALL, 20)
    optimizer = make_optimizer(model, config)
    checkpoint.save(Folder(tmp_path), 1, checkpoint.live(model, optimizer), {})
    other = Decoder(SMALL, 20, 5)
    again = make_optimizer(other, config)
    checkpoint.restore(checkpoint.load_step(Folder(tmp_path), 1), other, again)
    untouched = Decoder(SMALL, 20)
    for one, by in ((model, optimizer), (other, again), (untouched, make_optimizer(untouched, config))):
        one(torch.arange(20)[None]).square().sum().backward()
        by.step()
    for name, value in untouched.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]) and torch.equal(
            value, other.state_dict()[name]
        ), name


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


SAID = {"unlink": "missing", "cut": "bytes, not", "flip": "not the bytes published"}
FILES = ["model.safetensors", "optimizer.safetensors", "tensors.json", STATE]


@pytest.mark.parametrize("harm", [Path.unlink, cut, flip])
@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_harmed_checkpoint_is_never_taken(run: Folder, harm: Callable[[Path], None], name: str) -> None:
    harm(place(run, 3, name))
    refused: dict[int, str] = {}
    found = checkpoint.load_newest(run, refused)
    assert found is not None and found.step == 2
    assert list(refused) == [3] and "step-000003: not taken" in refused[3]
    if name != "manifest.json":
        assert f"{name}: " in refused[3] and SAID[harm.__name__] in refused[3]
        with pytest.raises(WorkError, match=f"step-000003: not taken: {name}"):
            checkpoint.load_step(run, 3)


def test_tensors_that_are_not_there_are_noticed(run: Folder) -> None:
    """Trap: a table that lost its optimizer, with hashes that agree, would restore none silently."""
    file, manifest = place(run, 3, "tensors.json"), place(run, 3, "manifest.json")
    table, published = json.loads(file.read_text()), json.loads(manifest.read_text())

    def write() -> None:
        data = json.dumps(table).encode()
        file.write_bytes(data)
        next(f for f in published["files"] if f["path"] == file.name).update(
            bytes=len(data), xxh3=checksum(data)
        )
        manifest.write_text(json.dumps(published))

    box = table["tensors"]["norm.weight"]["boxes"][0]
    box["sizes"] = [15]
    write()
    with pytest.raises(WorkError, match="norm.weight is not whole"):
        checkpoint.load_step(run, 3)
    box["sizes"] = [16]
    del table["tensors"]["exp_avg/norm.weight"]
    write()
    with pytest.raises(WorkError, match="it holds 32 tensors of the optimizer, not 33"):
        checkpoint.load_step(run, 3)
    published["tensors"]["optimizer"] = 32
    write()
    with pytest.raises(WorkError, match="exp_avg/norm.weight is absent, this optimizer has F32"):
        checkpoint.restore(checkpoint.load_step(run, 3), *trained())


def test_a_store_that_fails_says_nothing_about_a_checkpoint(
    run: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Folder, offset: int, size: int) -> bytes:
        raise WorkError(f"{self.url}: cannot read: connection refused")

    monkeypatch.setattr(Folder, "read_range", broken)
    with pytest.raises(WorkError, match="connection refused"):
        checkpoint.load_newest(run)


def test_keep_last_counts_valid_ones_only(run: Folder) -> None:
    place(run, 3, "manifest.json").unlink()
    place(run, 4, "x").parent.mkdir()
    place(run, 4, "model.safetensors").write_bytes(b"half")
    assert checkpoint.prune(run, 2) == []  # 3 and 4 are no checkpoints: 1 and 2 stay
    place(run, 1, "optimizer.safetensors").unlink()
    assert checkpoint.prune(run, 2) == [1]  # older than the newest valid one, and of no use
    saved(run, 5)
    assert checkpoint.prune(run, 2) == [3, 4]
    saved(run, 6)
    assert checkpoint.prune(run, 2) == [2] and there(run) == [5, 6]


def test_keep_every_keeps_for_ever(run: Folder) -> None:
    for step in (4, 5, 6, 7):
        saved(run, step)
    flip(place(run, 7, "manifest.json"))
    assert checkpoint.prune(run, 1, keep_every=3) == [1, 2, 4, 5]
    assert there(run) == [3, 6, 7]  # 7 is not valid, and newer than what is
    with pytest.raises(ValidationError, match="keep_every 30 is not a multiple of every 20"):
        CheckpointConfig(every=20, keep_every=30)


def test_a_folder_that_somebody_writes_is_left_alone(run: Folder) -> None:
    place(run, 2, "manifest.json").unlink()
    seen: dict[int, Any] = {}
    assert checkpoint.prune(run, 2, seen=seen) == []  # seen for the first time
    place(run, 2, "model-00002.safetensors").write_bytes(b"more")
    assert checkpoint.prune(run, 2, seen=seen) == []  # it grows
    assert checkpoint.prune(run, 2, seen=seen) == [2] and there(run) == [1, 3]


def test_what_is_abandoned_is_gone_newest_first(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    order, delete = list[str](), Folder.delete

    def watched(self: Folder, paths: Any = None) -> None:
        order.append(f"{self.name} {paths}")
        delete(self, paths)

    monkeypatch.setattr(Folder, "delete", watched)
    checkpoint.abandon(run, [2, 3])
    assert order[0] == "step-000003 ['manifest.json']" and order[2] == "step-000002 ['manifest.json']"
    assert there(run) == [1]


def test_saving_over_an_invalid_one_leaves_nothing_of_it(
    run: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(place(run, 3, "model.safetensors"))
    place(run, 3, "model-00007-of-00009.safetensors").write_bytes(b"of another world size")
    place(run, 3, "model.safetensors#1").write_bytes(b"of a killed writer")
    write = Folder.write

    def dying(self: Folder, data: bytes) -> None:
        if self.name == STATE:
            raise KeyboardInterrupt
        write(self, data)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Folder, "write", dying)
        saved(run, 3, seed=4)
    assert not place(run, 3, "manifest.json").exists()
    saved(run, 3, seed=4)
    names = {path.name for path in place(run, 3, "x").parent.iterdir()}
    assert names == {*FILES, "manifest.json"}


def test_another_model_is_refused_by_tensor(run: Folder) -> None:
    found = checkpoint.load_newest(run)
    assert found is not None
    wide, _ = trained(config=SMALL.model_copy(update={"ffn_dim": 24}))
    with pytest.raises(
        WorkError, match=r"layers\.0\.ffn\.gate\.weight is F32 \(16, 16\), this model has F32 \(24, 16\)"
    ):
        checkpoint.restore(found, wide)
    with pytest.raises(WorkError, match=r"embedding\.weight is F32 \(64, 16\), this model has BF16"):
        checkpoint.restore(found, trained()[0].bfloat16())
    deep, optimizer = trained(config=SMALL.model_copy(update={"layers": 2}))
    with pytest.raises(WorkError, match=r"layers\.1\.\S+ is absent"):
        checkpoint.restore(found, deep, optimizer)


@pytest.mark.s3
def test_training_from_and_to_object_storage(
    s3: str, shards: Folder, config: Callable[..., Any], tmp_path: Path
) -> None:
    from corpusmill.train.log.metrics import read_metrics
    from corpusmill.train.trainer import train

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
