"""Checkpoints that prove themselves: safetensors and JSON, and a manifest of hashes written last.

    checkpoints/step-000200/model.safetensors  optimizer.safetensors  state.json  manifest.json

A folder without a manifest, or with files that are not the manifest's, is never taken and never counted.
Works on any store. Nothing is pickled. Dropout is keyed by the step (`train.step`), so no generator's state is
part of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import torch
from pydantic import ValidationError

from schemas.errors import WorkError
from schemas.ids import checksum
from schemas.manifest import MANIFEST, PublishedFile
from schemas.storage import Folder
from schemas.training import CheckpointManifest
from train.model.decoder import Decoder
from train.optim.state import prepare, state_tensors

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
Tensors = dict[str, torch.Tensor]


class Checkpoint(NamedTuple):
    """A verified checkpoint: the bytes of its files, by name."""

    step: int
    folder: Folder
    files: dict[str, bytes]

    @property
    def state(self) -> dict[str, Any]:
        return dict(orjson.loads(self.files[STATE]))

    def tensors(self, name: str) -> Tensors:
        from safetensors.torch import load

        return load(self.files[name])


def save(
    run: Folder, step: int, model: Decoder, optimizer: torch.optim.Optimizer, state: dict[str, Any]
) -> Folder:
    """Publish a checkpoint; whoever kills this process leaves no manifest, hence nothing."""
    from safetensors.torch import save as to_bytes

    folder = run / f"checkpoints/step-{step:06d}"
    tensors = {MODEL: model_tensors(model), OPTIMIZER: optimizer_tensors(model, optimizer)}
    data = {name: to_bytes(found) for name, found in tensors.items()}
    data[STATE] = orjson.dumps(state)
    if (folder / MANIFEST).exists():  # an invalid one lies there: it must not vouch for the new files
        folder.delete([MANIFEST])
    files = []
    for name, content in data.items():
        (folder / name).write(content)
        files.append(PublishedFile(path=name, bytes=len(content), xxh3=checksum(content)))
    manifest = CheckpointManifest(
        step=step, files=files, tensors={name: len(found) for name, found in tensors.items()}
    )
    (folder / MANIFEST).write(manifest.model_dump_json(indent=1).encode())
    return folder


def model_tensors(model: Decoder) -> Tensors:
    """Parameters, and what else decides the model's answers: the experts' biases."""
    return {name: value.cpu().contiguous() for name, value in model.state_dict().items()}


def optimizer_tensors(model: Decoder, optimizer: torch.optim.Optimizer) -> Tensors:
    """The optimizer's state under `<key>/<parameter name>` (`train.optim.state`)."""
    return {
        name: tensor.detach().cpu().contiguous() for name, tensor in state_tensors(model, optimizer).items()
    }


def steps(run: Folder) -> dict[int, dict[str, int]]:
    """Every checkpoint folder there is, valid or not: step -> {file: bytes}, in rising order."""
    found: dict[int, dict[str, int]] = {}
    for entry in (run / "checkpoints").list():
        match = re.fullmatch(r"step-(\d+)/(.+)", entry.path)
        if match:
            found.setdefault(int(match[1]), {})[match[2]] = entry.size
    return dict(sorted(found.items()))


def read_manifest(folder: Folder, sizes: dict[str, int]) -> CheckpointManifest:
    """The manifest, if every file it names lies there with the right size; raises `WorkError` if not."""
    try:
        manifest = CheckpointManifest.model_validate_json((folder / MANIFEST).read())
    except FileNotFoundError:
        raise WorkError("it has no manifest") from None
    except ValidationError:
        raise WorkError("its manifest cannot be read") from None
    for file in manifest.files:
        if sizes.get(file.path) != file.bytes:
            raise WorkError(f"{file.path} has {sizes.get(file.path, 'no')} bytes, not {file.bytes}")
    if {file.path for file in manifest.files} != {MODEL, OPTIMIZER, STATE}:
        raise WorkError("its manifest does not name the files of a checkpoint")
    return manifest


def load_newest(run: Folder, refused: list[str] | None = None) -> Checkpoint | None:
    """The newest checkpoint whose every byte is as published, or None. `refused` collects why others are not."""
    for step, sizes in reversed(steps(run).items()):
        folder = run / f"checkpoints/step-{step:06d}"
        try:
            manifest = read_manifest(folder, sizes)
            data = {file.path: (folder / file.path).read() for file in manifest.files}
            for file in manifest.files:
                if checksum(data[file.path]) != file.xxh3:
                    raise WorkError(f"the bytes of {file.path} are not those published")
            checkpoint = Checkpoint(step, folder, data)
            for name, count in manifest.tensors.items():
                if len(checkpoint.tensors(name)) != count:
                    raise WorkError(f"{name} does not hold {count} tensors")
            return checkpoint
        except (WorkError, FileNotFoundError) as error:
            if refused is not None:
                refused.append(f"{folder}: not taken: {error}")
    return None


def load_step(run: Folder, step: int) -> Checkpoint:
    """A certain checkpoint: what the first process found, for the others."""
    folder = run / f"checkpoints/step-{step:06d}"
    manifest = CheckpointManifest.model_validate_json((folder / MANIFEST).read())
    return Checkpoint(step, folder, {file.path: (folder / file.path).read() for file in manifest.files})


@torch.no_grad()
def restore(checkpoint: Checkpoint, model: Decoder, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Put the tensors in place. Raises `WorkError` if one is missing, too many, or of another shape."""
    if optimizer is not None:
        prepare(optimizer)
    everything = model.state_dict()
    found = checkpoint.tensors(MODEL)
    _same(checkpoint, MODEL, {name: tuple(value.shape) for name, value in everything.items()}, found)
    for name, value in everything.items():
        value.copy_(found[name])
    if optimizer is None:
        return
    there, saved = state_tensors(model, optimizer), checkpoint.tensors(OPTIMIZER)
    _same(checkpoint, OPTIMIZER, {name: tuple(tensor.shape) for name, tensor in there.items()}, saved)
    for name, tensor in there.items():
        tensor.copy_(saved[name])


def _same(checkpoint: Checkpoint, file: str, shapes: dict[str, tuple[int, ...]], found: Tensors) -> None:
    there = {name: tuple(tensor.shape) for name, tensor in found.items()}
    wrong = [name for name in {**shapes, **there} if shapes.get(name) != there.get(name)]
    if wrong:
        raise WorkError(
            f"{checkpoint.folder}/{file}: made for another model or optimizer: {wrong[0]} is {there.get(wrong[0], 'absent')}, this"
            f" model has {shapes.get(wrong[0], 'no such tensor')} ({len(wrong)} tensors differ)"
        )


def prune(run: Folder, keep_last: int) -> list[int]:
    """Delete valid checkpoints beyond the newest `keep_last`, and what killed runs left behind; steps deleted."""
    valid, gone = [], []
    everything = steps(run)
    for step, sizes in reversed(everything.items()):
        try:
            read_manifest(run / f"checkpoints/step-{step:06d}", sizes)
            valid.append(step)
        except WorkError:
            gone.append(step)
    gone = [step for step in gone if valid and step < valid[0]] + valid[keep_last:]
    for step in gone:
        folder = run / f"checkpoints/step-{step:06d}"
        names = sorted(everything[step], key=lambda name: name != MANIFEST)  # the manifest first
        for name in names:
            folder.delete([name])
        if folder.local:
            place = Path("/" + folder.path)
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
    return sorted(gone)
