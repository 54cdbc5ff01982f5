"""Saved by some processes, read by others: the same tensors, the optimizer's included, whatever the two layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from corpusmill.common.storage import Folder
from corpusmill.train import checkpoint
from tests.forks import launch
from tests.train.checkpoint.worker import CUT, act, reference


def world(size: int, tmp_path: Path, tasks: list[str]) -> list[str]:
    """Let so many processes do the worker's tasks (one of its own: in this process); what each of them printed."""
    tasks = [task.format(tmp_path) for task in tasks]
    if size == 1:
        for task in tasks:
            act(task)
        return []
    done = launch(size, "tests.train.checkpoint.worker", *tasks)
    assert done.returncode == 0, done.stderr
    return done.outputs


def test_two_processes_to_one_two_and_back(tmp_path: Path) -> None:
    world(1, tmp_path, ["plain:save:{}/one"])
    reported = world(
        2, tmp_path,
        ["zero:save:{}/two", "zero:load:{}/two", "zero:load:{}/one", "zero:fail:{}/full", "zero:harm:{}/two"],
    )  # fmt: skip
    names = {entry.path for entry in (Folder(tmp_path) / "two/checkpoints/step-000002").list()}
    assert {f"{part}-0000{n}-of-00002.safetensors" for part in ("model", "optimizer") for n in (1, 2)} < names
    world(1, tmp_path, ["plain:load:{}/two"])
    # One process cannot write, then one finds damage: all report the same, in one line.
    assert reported[0] == reported[1]
    failed, harmed = reported[0].splitlines()
    assert "-00002-of-00002.safetensors: cannot write: no space" in failed
    assert (
        harmed.startswith("2 [")
        and "step-000004: not taken: model-00002-of-00002.safetensors: not the" in harmed
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adamw", "adafactor", "muon"])
def test_every_sharding_reads_every_other(tmp_path: Path, kind: str) -> None:
    layouts = {1: ["plain"], 2: ["plain", "zero"], 4: ["zero", "hybrid"]}
    runs = [f"{layout}-{size}" for size, found in layouts.items() for layout in found]
    for size, found in layouts.items():
        world(size, tmp_path, [f"{layout}:save:{{}}/{layout}-{size}:{kind}" for layout in found])
    for size, found in layouts.items():
        world(size, tmp_path, [f"{layout}:load:{{}}/{run}:{kind}" for layout in found for run in runs])


def test_cuts_of_tensor_parallelism_times_shards_of_them(tmp_path: Path) -> None:
    world(4, tmp_path, ["cut:save:{}/run", "cut:load:{}/run"])
    found = checkpoint.load_newest(Folder(tmp_path / "run"))
    assert found is not None and {name: stored.shape for name, stored in found.table.items()} == CUT
    tensors = {**checkpoint.read_tensors(found), **checkpoint.read_tensors(found, checkpoint.OPTIMIZER)}
    for number, (name, shape) in enumerate(CUT.items()):
        assert torch.equal(tensors[name], reference(shape, number)), name
    # Every box lies where the table says, under a name that other tools can read.
    boxes = [box for stored in found.table.values() for box in stored.boxes]
    assert len({box.file for box in boxes}) > 2 and "b[0:2,5:10,0:3]" in {box.key for box in boxes}
    for box in boxes:
        with safe_open(f"{found.folder.url}/{box.file}", "pt") as file:
            part = tuple(slice(a, a + n) for a, n in zip(box.offsets, box.sizes, strict=True))
            name = box.key.partition("[")[0]
            assert torch.equal(file.get_tensor(box.key), tensors[name][part])
    world(2, tmp_path, ["cut:load:{}/run"])
