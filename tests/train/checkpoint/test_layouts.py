"""Saved by some processes, read by others: the same tensors, the optimizer's included, whatever the two layouts."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from schemas.storage import Folder
from tests.conftest import ROOT
from tests.train.checkpoint.worker import CUT, reference
from tests.train.test_resume import environment
from train import checkpoint

meetings = itertools.count()


def world(size: int, layout: str, action: str, run: Path, kind: str = "adamw") -> list[str]:
    """Run the worker in so many processes; what each of them printed."""
    run.mkdir(exist_ok=True)
    meet = str(run.parent / f"meet-{next(meetings)}")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.train.checkpoint.worker", layout, action, str(run), kind],
            cwd=ROOT, env=environment(RANK=str(rank), WORLD_SIZE=str(size), MEET=meet), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(size)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=120) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    return [output for output, _ in outputs]


def test_two_processes_to_one_two_and_back(tmp_path: Path) -> None:
    run = tmp_path / "run"
    world(2, "zero", "save", run)
    names = {entry.path for entry in (Folder(run) / "checkpoints/step-000002").list()}
    assert {f"{part}-0000{n}-of-00002.safetensors" for part in ("model", "optimizer") for n in (1, 2)} < names
    world(1, "zero", "load", run)
    world(2, "zero", "load", run)
    other = tmp_path / "other"
    world(1, "zero", "save", other)
    world(2, "zero", "load", other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adamw", "adafactor", "muon"])
def test_every_sharding_reads_every_other(tmp_path: Path, kind: str) -> None:
    layouts = [(1, "plain"), (2, "plain"), (2, "zero"), (4, "zero"), (4, "hybrid")]
    for size, layout in layouts:
        run = tmp_path / f"{layout}-{size}"
        world(size, layout, "save", run, kind)
        for other, by in layouts:
            world(other, by, "load", run, kind)


def test_cuts_of_tensor_parallelism_times_shards_of_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    world(4, "cut", "save", run)
    found = checkpoint.load_newest(Folder(run))
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
    world(2, "cut", "load", run)


def test_one_process_that_cannot_write_stops_all_alike(tmp_path: Path) -> None:
    said = world(2, "zero", "fail", tmp_path / "run")
    assert said[0] == said[1] and "cannot write: no space" in said[0] and said[0].count("\n") == 1


def test_all_processes_refuse_the_same_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    world(2, "zero", "save", run)
    file = run / "checkpoints/step-000002/optimizer-00002-of-00002.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    said = world(2, "zero", "refuse", run)
    assert (
        said[0] == said[1]
        and said[0].startswith("None")
        and f"{file.name}: not the bytes published" in said[0]
    )
