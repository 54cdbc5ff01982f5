"""`inputs.json` of a run: the files that it read, as they looked, and where it was made. No other file of a run depends on
where it lies and when its input was written; nothing is made of this one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from corpusmill.common.storage import Folder

INPUTS = "inputs.json"


class Inputs(NamedTuple):
    """`files`: "<source>/<path>" -> (bytes, change tag, xxh3). `made_in`: the directory that relative paths of the recipe
    start from, relative to the run's folder, so that both may move together; "" if it is not known or not needed."""

    files: dict[str, tuple[int, str, str]]
    made_in: str = ""

    def json(self) -> bytes:
        return json.dumps(self._asdict(), indent=0).encode()


def parse_inputs(data: bytes) -> Inputs:
    """What `inputs.json` says; nothing if it is no such file."""
    try:
        content = json.loads(data)
        files = content.get("files")
        if not isinstance(files, dict):  # written before there was more in it than files
            content = {"files": content}
        known = {
            path: (int(size), str(tag), str(digest)) for path, (size, tag, digest) in content["files"].items()
        }
        return Inputs(known, str(content.get("made_in", "")))
    except (ValueError, TypeError, AttributeError):
        return Inputs({})


def is_relative(path: str) -> bool:
    """Whether a path of a recipe depends on the directory in which the command is given."""
    return "://" not in path and not Path(path).expanduser().is_absolute()


def made_in(run: Folder, paths: Iterable[str]) -> str:
    """What to keep of the present directory for a run that reads `paths`."""
    if not run.local or not any(map(is_relative, paths)):
        return ""
    return os.path.relpath(Path.cwd(), os.path.realpath(run.url))


def where_made(run: Folder, kept: str) -> str:
    """That directory, from what was kept of it; "" if it is not known."""
    return os.path.normpath(f"{os.path.realpath(run.url)}/{kept}") if run.local and kept else ""
