"""A stage whose work is done: its manifest, which is published last, when whatever it does not name is deleted; its speed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from corpusmill.common.format import rate
from corpusmill.common.ids import sha256
from corpusmill.pipeline.engine.planned import Planned
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.stage import GlobalStage, LocalStage
from corpusmill.schemas.manifest import (
    Counts,
    PartitionManifest,
    PublishedFile,
    StageManifest,
    StageResources,
    Strict,
)

# Of local stages, whose folder may hold other files when a stage's command published straight into it.
_ROOTS = ("documents/", "decisions/", "signals/", "parts/", "units/", "scratch/")


def manifest_of(
    entry: Planned, parts: Sequence[PartitionManifest], manifests: Mapping[str, Strict], files: list[PublishedFile],
    counters: Mapping[str, int], seconds: float, resources: StageResources,
) -> StageManifest:  # fmt: skip
    """The manifest of a stage whose work is done: sums over its partitions, and of its own. `manifests`: of partitions and units of
    input, by their paths."""
    totals, per_source, counts = dict(counters), dict[str, Counts](), Counts()
    for part in parts:
        counts += part.counts
        seconds += part.seconds
        for name, number in part.counters.items():
            totals[name] = totals.get(name, 0) + number
        for source, number_of in part.per_source.items():
            per_source[source] = per_source.get(source, Counts()) + number_of
    return StageManifest(
        stage=entry.name, version=entry.stage.version, key=entry.key, params=entry.stage.key_params(),
        inputs=entry.inputs, partitions=[part.partition for part in parts], counts=counts,
        per_source=dict(sorted(per_source.items())), counters=dict(sorted(totals.items())),
        files=files, checksums={path: sha256(one.to_json()) for path, one in manifests.items()},
        seconds=round(seconds, 3), resources=resources,
    )  # fmt: skip


def publish_manifest(
    entry: Planned,
    manifest: StageManifest,
    parts: Sequence[PartitionManifest],
    manifests: Collection[str],
    shared: bool,
) -> None:
    """Delete what the stage's folder holds beyond `manifest`, then publish that. `manifests`: the paths of those of partitions and
    units; `shared`: the folder is the user's, and may hold more than the stage's files."""
    wanted = {entry.manifest, *manifests, *(file.path for part in parts for file in part.files)}
    wanted.update(file.path for file in manifest.files)
    whole = isinstance(entry.stage, GlobalStage) and not shared
    stale = [
        one.path
        for one in entry.folder.list()
        if one.path not in wanted and (whole or one.path.startswith(_ROOTS) or one.path in entry.old_files)
    ]
    entry.folder.delete(stale)
    for root in [""] if whole else [*_ROOTS, "removals/", "spans/"]:
        (entry.folder / root).sweep()
    entry.folder.sweep(wanted)
    publish_bytes(entry.folder, entry.manifest, manifest.to_json())


def speed(entry: Planned) -> str:
    """Processor time of a local stage, and bytes of its input for each second of it; empty where most of its work was done
    before, across partitions."""
    assert entry.done is not None
    if isinstance(entry.stage, LocalStage) and entry.stage.looks_across:
        return ""
    speed = rate(entry.done.counts.bytes_in / 1e6, entry.done.seconds, "MB")
    return f"{entry.done.seconds:.1f} s CPU, {speed}: "
