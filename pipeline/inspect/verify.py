"""`corpusmill verify`: recompute every checksum and the conservation law of a run or of one stage's folder; of a publication its
checksums and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow.compute as pc
from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import RUN, Record, read_record, stage_manifests, without_manifest
from corpusmill.pipeline.engine.planned import expired_of
from corpusmill.pipeline.engine.publish import parse_table
from corpusmill.pipeline.engine.stage import Partition, Scheduler
from corpusmill.pipeline.engine.tasks import as_partition
from corpusmill.pipeline.inspect.publication.check import check as check_publication
from corpusmill.schemas.manifest import (
    MANIFEST,
    TEXTS,
    Counts,
    PartitionManifest,
    PublishedFile,
    StageManifest,
)
from corpusmill.schemas.recipe import LOCAL, is_local
from corpusmill.schemas.shards import INDEX
from corpusmill.schemas.tables import KEPT, QUARANTINED, REMOVED


@dataclass
class Verified:
    """What was checked, and what is wrong: `problems` is empty if all is well."""

    files: int = 0
    bytes: int = 0
    stages: dict[str, Counts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what could not be checked, and why
    unfinished: bool = False  # the run did not finish: what is there may be right, but is not all
    decoded: int = 0  # documents of shards, compared with their cleaned text
    # Rows of the ledger by (source, outcome, stage); the stage of a kept document is left out.
    ledger: Counter[tuple[str, str, str]] = field(default_factory=Counter)


SAMPLE = 400  # documents of shards that are decoded, unless another number is given


def verify(run: Folder, scheduler: Scheduler | None = None, sample: int | None = SAMPLE) -> Verified:
    """Check everything that was published below `run`. `sample`: documents of shards to decode, None for all.

    Every stage that the run's record lists is there, and shards have their manifest; every file's bytes against its
    manifest; rows against counts; in = kept + removed + quarantined in every partition and stage; what one stage kept is
    what the next got; one ledger row per record, and per source and stage as many of each outcome as the stage counted;
    shards read back, a sample of their documents decoded.
    Raises `UserError` if there is nothing to verify.
    """
    if (published := check_publication(run, scheduler)) is not None:
        return Verified(files=published.files, bytes=published.bytes, problems=published.problems)
    result = Verified()
    names = [entry.path for entry in run.list()]
    files = stage_manifests(run, names)
    between = _in_between(run, result)
    without = [folder for folder in without_manifest(run, names) if folder not in between]
    record = _record(run, files, result)
    absent = [] if record is None else _absent(record, files, between, result)
    result.problems += [
        f"{folder}: shards without their {MANIFEST}: what wrote them was not finished, or it is lost; give the"
        " command that writes them again"
        for folder in without
        if folder not in absent
    ]
    if not files and not result.problems:
        raise UserError(f"{run}: no finished stage there; give the folder of a run, such as runs/quickstart")
    manifests: dict[str, StageManifest] = {}
    folders: dict[str, Folder] = {}
    for file, data in files.items():
        manifest = _stage(file, data, result)
        if manifest is not None:
            manifests[manifest.stage], folders[manifest.stage] = manifest, file.parent
            if manifest.partitions:
                result.stages[manifest.stage] = manifest.counts
    if record is not None:
        _changed(record, manifests, result)
    if "shard" in manifests:
        _shards(manifests, folders, scheduler, sample, result)
    for folder in without:
        _by_themselves(folder, scheduler, sample, result)
    _chain(manifests, result)
    return result


def _in_between(run: Folder, result: Verified) -> list[Folder]:
    """Shards whose takedown was begun and not finished: they have no manifest until it is."""
    from corpusmill.pipeline.inspect.shards.sets import in_between
    from corpusmill.pipeline.shard.takedown_log import under_way

    found = []
    for folder in (run, run / "shards"):
        request = None if (folder / MANIFEST).exists() else under_way(folder)
        if request is not None:
            result.problems.append(in_between(folder, request))
            found.append(folder)
    return found


def _record(run: Folder, files: Collection[Folder], result: Verified) -> Record | None:
    """The run's record; a note where there is none, of a run that is not finished."""
    try:
        record = read_record(run)
    except WorkError as error:
        result.problems.append(str(error))
        return None
    # A stage's folder of a run has its own manifest alone.
    if record is None and any(file.parent != run for file in files):
        result.unfinished = True
        result.notes.append(
            f"{run}: not finished: {MANIFEST} of the whole ({RUN} of a stage's command) is written last, and is not"
            " there; run the command that made it again to continue"
        )
    return record


def _absent(
    record: Record, files: Collection[Folder], between: list[Folder], result: Verified
) -> list[Folder]:
    """Reports stages that the run's record lists and that are missing; their folders."""
    absent = [one for one in record.stages if one.manifest not in files and one.folder not in between]
    result.problems += [
        f"{one.folder}: no finished {one.stage} there, but {record.file} lists it; bring the folder back, or give the"
        " run's command again"
        for one in absent
    ]
    return [one.folder for one in absent]


def _changed(record: Record, manifests: dict[str, StageManifest], result: Verified) -> None:
    """Notes stages that differ from the record's: the last run was not finished."""
    other = [one.stage for one in record.stages if manifests.get(one.stage, one).key != one.key]
    if other:
        result.unfinished = True
        result.notes.append(
            f"{record.file}: of another run than {', '.join(other)}: a later one was not finished; give its command"
            " again, and it goes on"
        )


def _stage(file: Folder, data: bytes, result: Verified) -> StageManifest | None:
    folder = file.parent
    try:
        manifest = StageManifest.model_validate_json(data)
    except ValidationError as error:
        result.problems.append(f"{file}: {error.errors()[0]['msg']}")
        return None
    for published in manifest.files if manifest.stage != "shard" else []:  # those have a check of their own
        content = _file(folder, published, result)
        if content is not None and manifest.stage == "ledger":
            _count_ledger(content, result)
    total = Counts()
    per_source: dict[str, Counts] = {}
    gone = expired_of(folder, manifest.key)
    if gone is not None:
        result.notes.append(f"{folder}: its text was deleted on purpose ({gone.why}), and is not checked")
    for name in manifest.partitions:
        try:
            part = PartitionManifest.model_validate_json((folder / f"parts/{name}.json").read())
        except FileNotFoundError:
            result.problems.append(f"{folder}: partition {name} has no manifest")
            continue
        except ValidationError as error:
            result.problems.append(f"{folder}/parts/{name}.json: {error.errors()[0]['msg']}")
            continue
        total += part.counts
        for source, counts in part.per_source.items():
            per_source[source] = per_source.get(source, Counts()) + counts
        for published in part.files:
            if gone is not None and published.path.startswith(TEXTS):
                continue
            content, where = _file(folder, published, result), f"{folder}/{published.path}"
            if content is None:
                continue
            if published.path.startswith("decisions/"):
                _decisions(where, content, part.counts, result)
            elif published.path.startswith("documents/") and published.rows != part.counts.kept:
                result.problems.append(f"{where}: {published.rows} rows, {part.counts.kept} documents kept")
    if total != manifest.counts:
        result.problems.append(f"{folder}: counts of the partitions do not add up to the stage's")
    if manifest.partitions and _documents(per_source) != _documents({"": total}):
        result.problems.append(f"{folder}: counts of the sources do not add up to the stage's")
    return manifest


def _shards(
    manifests: dict[str, StageManifest], folders: dict[str, Folder], scheduler: Scheduler | None,
    sample: int | None, result: Verified,
) -> None:  # fmt: skip
    """The shards by themselves, against their manifest, and against the documents that they were written from."""
    from corpusmill.pipeline.inspect.shards import check_shards
    from corpusmill.pipeline.inspect.shards.documents import compare

    manifest, folder = manifests["shard"], folders["shard"]
    found = check_shards(folder, scheduler, manifest.files, sample)
    result.files += found.files
    result.bytes += found.bytes
    problems = found.problems
    for published in manifest.files:
        file = f"{folder}/{published.path}"
        if published.path.endswith(".tar") and found.checked:
            continue  # read by the check
        if not any(problem.startswith(f"{file}:") for problem in problems):
            _file(folder, published, result)
    result.problems += problems
    last = next((name for name in manifest.inputs if is_local(name)), "")
    documents = manifests.get(last)
    if documents is None or documents.key != manifest.inputs[last]:
        result.notes.append(
            f"{folder}: not held to the cleaned documents: those it was made from are not there"
        )
    elif not problems:
        parts = [_partition(folders[last], name) for name in documents.partitions]
        result.problems += compare(folder.url, found, [part for part in parts if part is not None], scheduler)
        result.decoded = found.decoded


def _by_themselves(folder: Folder, scheduler: Scheduler | None, sample: int | None, result: Verified) -> None:
    """Shards that have no manifest, against their own lists, if these were written."""
    from corpusmill.pipeline.inspect.shards import check_shards

    if (folder / INDEX).exists():
        found = check_shards(folder, scheduler, (), sample)
        result.files += found.files
        result.bytes += found.bytes
        result.problems += found.problems


def _partition(folder: Folder, name: str) -> Partition | None:
    """A published partition, if its manifest can be read: that it can is checked elsewhere."""
    try:
        part = PartitionManifest.model_validate_json((folder / f"parts/{name}.json").read())
    except (FileNotFoundError, ValidationError):
        return None
    return as_partition(folder, part)


def _documents(counts: dict[str, Counts]) -> tuple[int, int, int, int]:
    total = sum(counts.values(), Counts())
    return total.docs_in, total.kept, total.removed, total.quarantined


def _file(folder: Folder, file: PublishedFile, result: Verified) -> bytes | None:
    """The bytes of a published file, if they are what its manifest says."""
    where = f"{folder}/{file.path}"
    try:
        data = (folder / file.path).read()
    except FileNotFoundError:
        result.problems.append(f"{where}: missing")
        return None
    result.files += 1
    result.bytes += len(data)
    if len(data) != file.bytes:
        result.problems.append(f"{where}: {len(data)} bytes, published with {file.bytes}")
        return None
    if checksum(data) != file.xxh3:
        result.problems.append(f"{where}: checksum differs from the published one")
        return None
    if file.rows is not None and file.path.endswith(".parquet"):
        rows = len(parse_table(data, []))
        if rows != file.rows:
            result.problems.append(f"{where}: {rows} rows, published with {file.rows}")
    return data


def _decisions(where: str, data: bytes, counts: Counts, result: Verified) -> None:
    outcomes = parse_table(data, ["outcome"])["outcome"]
    found = {entry["values"]: entry["counts"] for entry in pc.value_counts(outcomes).to_pylist()}
    for name in ("removed", "quarantined"):
        rows, counted = found.get(name, 0), getattr(counts, name)
        if rows != counted:
            result.problems.append(f"{where}: {rows} rows {name}, counted {counted}")


def _count_ledger(data: bytes, result: Verified) -> None:
    rows = parse_table(data, ["source", "outcome", "stage"])
    for row in rows.group_by(rows.column_names, use_threads=False).aggregate([([], "count_all")]).to_pylist():
        stage = row["stage"] if row["outcome"] != KEPT else ""
        result.ledger[row["source"], row["outcome"], stage] += row["count_all"]


def _chain(manifests: dict[str, StageManifest], result: Verified) -> None:
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
    if "ledger" in manifests and "ingest" in manifests:
        _ledger(manifests["ledger"], local, result)


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
