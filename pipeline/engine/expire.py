"""Text of intermediate stages deleted once a run is finished (`retain` of the recipe): of all local stages but the last.

`expired.json` is written before the first file goes, so that a reader who misses a document learns why; manifests, decisions and
signals stay. A stage that must run again makes what it needs again, from the raw input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from corpusmill.common.checkpoints import parse
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.planned import Planned
from corpusmill.schemas.manifest import EXPIRED, TEXTS, Expired, StageManifest, manifest_name
from corpusmill.schemas.recipe import LEDGER, Recipe, Retain, is_local

DAY = 86_400.0  # seconds


class Kept(NamedTuple):
    """A finished stage whose text may go, and its folder."""

    stage: str
    folder: Folder


def intermediate(recipe: Recipe, folder_of: Callable[[str], Folder]) -> list[Kept]:
    """The local stages of a recipe but the last, whose text is the run's result."""
    return [Kept(name, folder_of(name)) for name in recipe.local[:-1]]


def expire(stages: Sequence[Kept], retain: Retain, log: Callable[[str], None], *, now: bool = False) -> int:
    """Delete the text of those stages for which it is time; bytes deleted. `now`: of all, whatever `retain` is.

    Killed and called again, it goes on. What is not finished is left alone.
    """
    if retain == "all" and not now:
        return 0
    gone, names = 0, []
    for name, folder in stages:
        manifest = parse(StageManifest, folder / manifest_name(name))
        if manifest is None or not (now or _due(retain, folder / manifest_name(name))):
            continue
        texts = [entry for entry in folder.list() if entry.path.startswith(TEXTS)]
        if not texts:
            continue
        why = "corpusmill expire" if now else "retain: none" if retain == "none" else f"retain: {retain} days"
        before = parse(Expired, folder / EXPIRED)
        if before is None or before.key != manifest.key:
            (folder / EXPIRED).write(Expired(key=manifest.key, why=why).to_json())
        folder.delete([entry.path for entry in texts])
        gone += sum(entry.size for entry in texts)
        names.append(name)
    if names:
        log(
            f"expired: the text of {', '.join(names)}, {gone / 1e6:.1f} MB; manifests, decisions and signals stay,"
            " retain: all keeps it"
        )
    return gone


def _due(retain: Retain, manifest: Folder) -> bool:
    """Whether it is time, by when the stage's manifest was written, of which the store's clock knows."""
    if not isinstance(retain, int):
        return True
    written: float = manifest.store.head(manifest.path)["last_modified"].timestamp()
    return time.time() - written >= retain * DAY


def restore(planned: Sequence[Planned]) -> None:
    """Stages whose expired text is read by one that must run: they must run, too."""
    local = [entry for entry in planned if is_local(entry.name)]
    for entry in reversed(planned):
        if entry.done is not None:
            continue
        if entry in local:
            read = local[: local.index(entry)][-1:]
        else:
            read = [local[0], local[-1]] if entry.name == LEDGER else [local[-1]]
        for other in read:
            if other.done is not None and other.expired is not None:
                other.done = None
                other.why = f"its text is expired ({other.expired.why}), and {entry.name} reads it"
