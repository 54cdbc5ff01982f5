"""What a task leaves when all of its files are published: the same task, asked again, takes them as they are."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import PublishedFile, Strict


class Marker(Strict):
    """`key`: hash of all that the files depend on."""

    key: str
    files: list[PublishedFile]


Known = TypeVar("Known", bound=Marker)


def known(model: type[Known], marker: Folder, key: str, place: Folder) -> Known | None:
    """What `marker` holds, if it is of this key and its files lie below `place` in their sizes."""
    try:
        found = model.model_validate_json(marker.read())
        whole = all((place / file.path).entry().size == file.bytes for file in found.files)
    except (FileNotFoundError, ValidationError):
        return None
    return found if found.key == key and whole else None
