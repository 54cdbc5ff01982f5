"""The checkpoints of a run: which there are, which are valid, and which are kept."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import ValidationError

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Entry, Folder, Truncated
from corpusmill.schemas.manifest import (
    MANIFEST,
    CheckpointManifest,
    PublishedFile,
    StoredTensor,
    TensorTable,
    hash_json,
)

MODEL, OPTIMIZER = "model", "optimizer"  # parts, in separate files
TABLE, STATE = "tensors.json", "state.json"
Listing = dict[str, Entry]  # of a checkpoint's folder, by path


class Damaged(WorkError):
    """A checkpoint differs from what was published, or was never finished: it is not loaded."""


class Checkpoint(NamedTuple):
    """An open checkpoint: everything but the tensors' values."""

    folder: Folder
    manifest: CheckpointManifest
    table: dict[str, StoredTensor]
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def weights_xxh3(self) -> str:
        """Hash of the model's files: equal for equal weights saved by equally many processes."""
        found = [file.xxh3 for file in self.manifest.files if file.path.startswith(MODEL)]
        return found[0] if len(found) == 1 else hash_json(found)

    def part(self, name: str) -> dict[str, StoredTensor]:
        return {key: stored for key, stored in self.table.items() if part_of(key) == name}


def part_of(tensor: str) -> str:
    return OPTIMIZER if "/" in tensor else MODEL


def folder_of(run: Folder, step: int) -> Folder:
    return run / f"checkpoints/step-{step:06d}"


def steps(run: Folder) -> dict[int, Listing]:
    """Every checkpoint folder, valid or not, in ascending order: step -> its files."""
    found: dict[int, Listing] = {}
    for entry in (run / "checkpoints").list():
        match = re.fullmatch(r"step-(\d+)/(.+)", entry.path)
        if match:
            found.setdefault(int(match[1]), {})[match[2]] = entry
    return dict(sorted(found.items()))


def read_manifest(folder: Folder, listing: Listing) -> CheckpointManifest:
    """The manifest, if every file that it names is there with the right size; raises `Damaged` if not."""
    try:
        manifest = CheckpointManifest.model_validate_json((folder / MANIFEST).read())
    except FileNotFoundError:
        raise Damaged("it has no manifest") from None
    except ValidationError:
        raise Damaged("its manifest cannot be read") from None
    for file in manifest.files:
        if file.path not in listing:
            raise Damaged(f"{file.path}: missing")
        if (size := listing[file.path].size) != file.bytes:
            raise Damaged(f"{file.path}: {size} bytes, not {file.bytes}")
    if not {TABLE, STATE} <= {file.path for file in manifest.files}:
        raise Damaged("its manifest does not name the files of a checkpoint")
    return manifest


def open_step(run: Folder, step: int, listing: Listing | None = None) -> Checkpoint:
    """A checkpoint, opened by this process alone: all is verified but the bytes of the tensors, which `load_step` and
    `load_newest` verify. Raises `Damaged` if it is not valid."""
    folder = folder_of(run, step)
    listing = {entry.path: entry for entry in folder.list()} if listing is None else listing
    manifest = read_manifest(folder, listing)
    if manifest.step != step:
        raise Damaged(f"its manifest is that of step {manifest.step}")
    sums = {file.path: file for file in manifest.files}
    data = {}
    for name in (TABLE, STATE):
        data[name] = (folder / name).read()
        if checksum(data[name]) != sums[name].xxh3:
            raise Damaged(f"{name}: not the bytes published")
    table = TensorTable.model_validate_json(data[TABLE]).tensors
    for part in (MODEL, OPTIMIZER):
        there, expected = sum(part_of(name) == part for name in table), manifest.tensors.get(part, 0)
        if there != expected:
            raise Damaged(f"it holds {there} tensors of the {part}, not {expected}")
    for name, stored in table.items():
        if sum(math.prod(box.sizes) for box in stored.boxes) != math.prod(stored.shape):
            raise Damaged(f"{name} is not whole")
        if any(box.file not in sums for box in stored.boxes):
            raise Damaged(f"{name} lies in a file that the manifest does not name")
    return Checkpoint(folder, manifest, table, json.loads(data[STATE]))


def damages(folder: Folder, files: list[PublishedFile]) -> list[str]:
    """What is wrong with the bytes of these files, a line each."""
    from corpusmill.train.checkpoint.files import hash_file

    found = []
    for file in files:
        try:
            if hash_file(folder, file.path, file.bytes) != file.xxh3:
                found.append(f"{file.path}: not the bytes published")
        except FileNotFoundError:
            found.append(f"{file.path}: missing")
        except Truncated:
            found.append(f"{file.path}: truncated")
    return found


class Verdict(NamedTuple):
    files: int
    bytes: int
    problems: list[str]  # a line each


def bad_files(run: Folder, step: int) -> Verdict:
    """Check every file of a checkpoint against its manifest, in this process alone."""
    files, problems = list[PublishedFile](), list[str]()
    try:
        files = open_step(run, step).manifest.files
    except (Damaged, FileNotFoundError) as error:
        problems.append(str(error))
        with suppress(FileNotFoundError, ValidationError):
            manifest = (folder_of(run, step) / MANIFEST).read()
            files = CheckpointManifest.model_validate_json(manifest).files
    named = {line.partition(":")[0] for line in problems}
    problems += [line for line in damages(folder_of(run, step), files) if line.partition(":")[0] not in named]
    return Verdict(len(files), sum(file.bytes for file in files), problems)


def finish(folder: Folder, step: int, files: list[PublishedFile], table: TensorTable, state: bytes) -> None:
    """Write what is not tensors, the manifest last."""
    for name, data in ((TABLE, table.model_dump_json().encode()), (STATE, state)):
        (folder / name).write(data)
        files = [*files, PublishedFile(path=name, bytes=len(data), xxh3=checksum(data))]
    counts = {part: sum(part_of(name) == part for name in table.tensors) for part in (MODEL, OPTIMIZER)}
    manifest = CheckpointManifest(step=step, files=files, tensors=counts)
    (folder / MANIFEST).write(manifest.model_dump_json(indent=1).encode())


def remove(folder: Folder) -> None:
    """Delete a checkpoint's folder, the manifest first, so that what is left at any moment is no valid checkpoint."""
    folder.delete([MANIFEST])
    folder.sweep()
    folder.delete()


def abandon(run: Folder, gone: list[int]) -> None:
    """Delete these checkpoints, the newest first, so that at any moment the run could continue from the rest."""
    for step in sorted(gone, reverse=True):
        remove(folder_of(run, step))


def prune(
    run: Folder, keep_last: int, keep_every: int | None = None, seen: dict[int, Listing] | None = None,
    refused: Collection[int] = (), pinned: Collection[int] = (),
) -> list[int]:  # fmt: skip
    """Delete checkpoints that are not kept; returns the steps deleted.

    Kept are the newest `keep_last` valid ones, those whose step is a multiple of `keep_every`, and those `pinned`. Invalid ones do not count,
    nor do `refused` ones, whose bytes were found wrong; those older than the newest valid one were left by killed runs, and
    are deleted. With `seen` (the listings of the last call, updated here) they are deleted only if unchanged since then, so
    that no process is writing to them.
    """
    valid, broken = list[int](), dict[int, Listing]()
    for step, listing in reversed(steps(run).items()):
        try:
            if step in refused:
                raise Damaged("its bytes are not those published")
            read_manifest(folder_of(run, step), listing)
            valid.append(step)
        except Damaged:
            if valid:
                broken[step] = listing
    older = [step for step in valid[keep_last:] if step not in pinned]
    gone = [step for step in older if not (keep_every and step % keep_every == 0)]
    gone += [step for step, listing in broken.items() if seen is None or seen.get(step) == listing]
    if seen is not None:
        seen.clear()
        seen.update(broken)
    abandon(run, gone)
    return sorted(gone)
