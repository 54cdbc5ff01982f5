"""Counts of stages against each other and against the ledger: in = kept + removed + quarantined, from end to end."""

from __future__ import annotations

from collections import Counter

from corpusmill.pipeline.inspect.verify.found import Verified
from corpusmill.schemas.augment import FAILED, MADE, UNCHANGED
from corpusmill.schemas.manifest import StageManifest
from corpusmill.schemas.recipe import LOCAL, is_local
from corpusmill.schemas.tables import KEPT, QUARANTINED, REMOVED


def check_chain(manifests: dict[str, StageManifest], result: Verified) -> None:
    """What one stage kept, the next one got; and the ledger has a row for every record."""
    own = [name for name in manifests if is_local(name) and name not in LOCAL]
    local = [manifests[name] for name in (*LOCAL, *own) if name in manifests]
    by_key = {manifest.key: manifest for manifest in local}
    for manifest in local:
        for name, key in manifest.inputs.items():
            before = manifests.get(name) if manifest.stage != "ingest" else None
            if before is None:
                continue
            given, kept = manifest.counts.docs_in, before.counts.kept
            if key not in by_key:
                problem = f"made from another version of {name} than the one there"
            elif given != kept:
                problem = f"{given} documents in, but {name} kept {kept}"
            else:
                continue
            result.problems.append(f"{manifest.stage}: {problem}")
    if "augment" in manifests:
        _augment(manifests["augment"], result)
    if "ledger" in manifests and "ingest" in manifests:
        _ledger(manifests["ledger"], local, result)


def _augment(manifest: StageManifest, result: Verified) -> None:
    """A document for every copy that was made, and a row of the account for every one that was to be made."""
    chosen: Counter[str] = Counter()
    for name, number in manifest.counters.items():
        kind, _, rest = name.partition("/")
        if kind == "by":
            chosen[rest.rpartition("/")[2]] += number
    for folder, wanted in (
        ("documents", chosen[MADE]),
        ("copies", chosen[MADE] + chosen[UNCHANGED] + chosen[FAILED]),
    ):
        rows = sum(file.rows or 0 for file in manifest.files if file.path.startswith(f"{folder}/"))
        if rows != wanted:
            result.problems.append(f"augment: {rows} rows in {folder}, {wanted} counted")


def _ledger(ledger: StageManifest, local: list[StageManifest], result: Verified) -> None:
    """A row for every record; and by source and stage as many of each outcome as the stage counted."""
    rows = sum(file.rows or 0 for file in ledger.files)
    if rows != local[0].counts.docs_in:
        result.problems.append(f"ledger: {rows} rows for {local[0].counts.docs_in} records")
    counted: Counter[tuple[str, str, str]] = Counter()
    for manifest in local:
        for source, counts in manifest.per_source.items():
            counted[source, REMOVED, manifest.stage] = counts.removed
            counted[source, QUARANTINED, manifest.stage] = counts.quarantined
    read = {key for manifest in local for key in manifest.inputs.values()}
    last = next((manifest for manifest in local if manifest.key not in read), local[-1])
    for source, counts in last.per_source.items():
        counted[source, KEPT, ""] = counts.kept
    for place in sorted({*counted, *result.ledger}):
        source, outcome, stage = place
        if counted[place] != result.ledger[place]:
            where = f" at {stage}" if stage else ""
            result.problems.append(
                f"ledger: {result.ledger[place]} documents of {source} {outcome}{where}, the stages count {counted[place]}"
            )
