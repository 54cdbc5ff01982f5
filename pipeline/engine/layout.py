"""What a run says of itself when all of it is done: `manifest.json`, of a stage's command `run.json`; and what is there
of it, whatever it says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.places import FOLDERS, stage_folders
from corpusmill.schemas.manifest import MANIFEST, manifest_name
from corpusmill.schemas.shards import INDEX

RUN = "run.json"  # of a stage's command, whose stage has `manifest.json`
KIND = "corpusmill-run-v1"
_TAR = re.compile(r"[^/]+/(train|validation)(-text)?/[^/]+\.tar")  # below a folder of shards


class Listed(NamedTuple):
    """A stage that a record lists: where it published, and the key that it had."""

    stage: str
    folder: Folder
    key: str

    @property
    def manifest(self) -> Folder:
        return self.folder / manifest_name(self.stage)


class Record(NamedTuple):
    """The record of a run, written after its last stage."""

    file: Folder
    stages: list[Listed]


def read_record(run: Folder) -> Record | None:
    """The record of a run or of a stage's command; None if there is none: it is not finished, or it is one stage's
    folder of a run. Raises `WorkError` if there is one that cannot be read."""
    for name in (MANIFEST, RUN):
        file = run / name
        try:
            data = file.read()
        except FileNotFoundError:
            continue
        try:
            content = json.loads(data)
            if name == RUN or content.get("kind") == KIND:
                keys = {str(stage): str(said["key"]) for stage, said in content["stages"].items()}
                places = _places(run, list(keys), name == RUN)
                return Record(file, [Listed(stage, places[stage], key) for stage, key in keys.items()])
        except (ValueError, TypeError, KeyError, AttributeError):
            if name == MANIFEST and b'"partitions"' in data:
                continue  # a stage's
            raise WorkError(f"{file}: not the record of a run; give the run's command again") from None
    return None


def _places(run: Folder, stages: list[str], alone: bool) -> dict[str, Folder]:
    if not alone:
        return {stage: run / FOLDERS.get(stage, stage) for stage in stages}
    return {stage: Folder(url) for stage, url in stage_folders(stages, run.url).items()}


def stage_manifests(run: Folder, names: Sequence[str]) -> dict[Folder, bytes]:
    """The manifests of stages among the files of a run: in the folder itself (a stage command's OUT), and one below."""
    found = {}
    for path in names:
        *parents, name = path.split("/")
        depth = 2 if parents[:1] == ["before"] else 1
        if name in (MANIFEST, f"_{MANIFEST}") and len(parents) <= depth:
            file = run / path
            data = file.read()
            if b'"partitions"' in data:
                found[file] = data
    return found


def without_manifest(run: Folder, names: Sequence[str]) -> list[Folder]:
    """Folders of shards, of a run or of a command, that have no manifest."""
    found = []
    for place in ("", "shards/"):
        inside = {name.removeprefix(place) for name in names if name.startswith(place)}
        folder = run / place
        if MANIFEST not in inside and (
            any(_TAR.fullmatch(name) for name in inside)
            or (INDEX in inside and b"corpusmill-shard-set" in (folder / INDEX).read())
        ):
            found.append(folder)
    return found
