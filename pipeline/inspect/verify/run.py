"""`corpusmill verify`: recompute every checksum and the conservation law of a run or of one stage's folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import quantity
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.copies import made_copies
from corpusmill.pipeline.engine.layout import Record, below, is_of_stage, manifest_paths, without_manifest
from corpusmill.pipeline.engine.stage import Partition, Scheduler
from corpusmill.pipeline.engine.tasks import as_partition
from corpusmill.pipeline.inspect.damage import is_there, read_present, read_regular, reported
from corpusmill.pipeline.inspect.publication.check import check as check_publication
from corpusmill.pipeline.inspect.verify.accounts import check_chain
from corpusmill.pipeline.inspect.verify.files import check_file, files_below
from corpusmill.pipeline.inspect.verify.found import Verified
from corpusmill.pipeline.inspect.verify.record import check_held, check_record, note_strays
from corpusmill.pipeline.inspect.verify.stage import check_stage
from corpusmill.schemas.manifest import MANIFEST, PartitionManifest, StageManifest
from corpusmill.schemas.recipe import is_local
from corpusmill.schemas.shards import INDEX

SAMPLE = 400  # documents of shards that are decoded, unless another number is given


def verify(
    run: Folder, scheduler: Scheduler | None = None, sample: int | None = SAMPLE, public_key: str = ""
) -> Verified:
    """Check everything that was published below `run`, or a publication. `sample`: documents of shards to decode, None for all. `public_key`:
    base64 of the key by which the record must be signed.

    The record's own checksum and signature; every stage that it lists is there, and its manifest is the one that it names; every
    file's bytes against its manifest; rows against counts; in = kept + removed + quarantined in every partition and stage; what
    one stage kept is what the next got; one ledger row per record, and per source and stage as many of each outcome as the stage
    counted; shards read back, a sample of their documents decoded. Files that nothing names are noted.

    Whatever bytes are there make problems, never an exception. Raises `UserError` if there is nothing to verify.
    """
    if (published := check_publication(run, scheduler)) is not None:
        return Verified(files=published.files, bytes=published.bytes, problems=published.problems)
    result = Verified()
    sizes: dict[str, int] = {}
    with reported(result.problems, run):
        sizes = files_below(run, result.problems)
    files = {run / path: data for path, data in _manifests(run, sizes, result)}
    between = _in_between(run, result)
    without = [folder for folder in _without_manifest(run, sizes, result) if folder not in between]
    record = check_record(run, files, public_key, result)
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
        result.named.add(below(run, file))
        with reported(result.problems, file):
            manifest = StageManifest.from_json(data, file)
            manifests[manifest.stage], folders[manifest.stage] = manifest, file.parent
            if manifest.partitions:
                result.stages[manifest.stage] = manifest.counts
            check_stage(run, file.parent, manifest, scheduler, result)
    if record is not None:
        check_held(run, record, files, manifests, between, result)
    if "shard" in manifests:
        with reported(result.problems, folders["shard"]):
            _shards(run, manifests, folders, scheduler, sample, result)
    for folder in without:
        with reported(result.problems, folder):
            _by_themselves(folder, scheduler, sample, result)
    with reported(result.problems, run):
        check_chain(manifests, result)
    result.problems = list(dict.fromkeys(result.problems))  # one file may be looked at twice
    if not result.unfinished:
        note_strays(run, sizes, result)
    if result.weak:
        result.notes.append(
            f"{quantity(result.weak, 'file')} of an earlier version, without SHA-256: a signature does not cover what has none"
        )
    return result


def _manifests(run: Folder, sizes: Mapping[str, int], result: Verified) -> Iterator[tuple[str, bytes]]:
    """The manifests of stages that are there, with their bytes."""
    for path in manifest_paths(sizes):
        with reported(result.problems, run / path):
            data = read_regular(run / path)
            if is_of_stage(data):
                yield path, data


def _without_manifest(run: Folder, sizes: Mapping[str, int], result: Verified) -> list[Folder]:
    with reported(result.problems, run):
        return without_manifest(run, sizes, read_regular)
    return []


def _in_between(run: Folder, result: Verified) -> list[Folder]:
    """Shards whose takedown was begun and not finished: their manifest is missing, or not yet the one on record."""
    from corpusmill.pipeline.engine.takedown_log import under_way
    from corpusmill.pipeline.inspect.shards.sets import in_between

    found = []
    for folder in (run, run / "shards"):
        with reported(result.problems, folder):
            request = under_way(folder, read_present)
            if request is not None:
                found.append(folder)
                result.problems.append(in_between(folder, request))
    return found


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


def _shards(
    run: Folder, manifests: dict[str, StageManifest], folders: dict[str, Folder], scheduler: Scheduler | None,
    sample: int | None, result: Verified,
) -> None:  # fmt: skip
    """The shards by themselves, against their manifest, and against the documents that they were written from."""
    from corpusmill.pipeline.inspect.shards import check_shards
    from corpusmill.pipeline.inspect.shards.documents import compare

    manifest, folder = manifests["shard"], folders["shard"]
    result.named.update(below(run, folder / published.path) for published in manifest.files)
    result.weak += sum(not published.sha256 for published in manifest.files)
    found = check_shards(folder, scheduler, manifest.files, sample)
    result.files += found.files
    result.bytes += found.bytes
    problems = found.problems
    for published in manifest.files:
        file = f"{folder}/{published.path}"
        if published.path.endswith(".tar") and found.checked:
            continue  # read by the check
        if not any(problem.startswith(f"{file}:") for problem in problems):
            with reported(result.problems, file):
                check_file(folder, published)
                result.files += 1
                result.bytes += published.bytes
    result.problems += problems
    last = next((name for name in manifest.inputs if is_local(name)), "")
    documents = manifests.get(last)
    sources = [name for name in (last, "augment") if name in manifest.inputs]
    if documents is None or any(
        name not in manifests or manifests[name].key != manifest.inputs[name] for name in sources
    ):
        result.notes.append(
            f"{folder}: not held to the cleaned documents: those it was made from are not there"
        )
    elif any(problem.startswith(f"{folders[name]}/") for problem in result.problems for name in sources):
        result.notes.append(f"{folder}: not held to the cleaned documents: those there are damaged")
    elif not problems:
        parts = [_partition(folders[last], name) for name in documents.partitions]
        copies = made_copies(folders["augment"])[1] if "augment" in manifest.inputs else []
        partitions = [*(part for part in parts if part is not None), *copies]
        result.problems += compare(folder.url, found, partitions, scheduler)
        result.decoded = found.decoded


def _by_themselves(folder: Folder, scheduler: Scheduler | None, sample: int | None, result: Verified) -> None:
    """Shards that have no manifest, against their own lists, if these were written."""
    from corpusmill.pipeline.inspect.shards import check_shards

    if is_there(folder / INDEX):
        found = check_shards(folder, scheduler, (), sample)
        result.files += found.files
        result.bytes += found.bytes
        result.problems += found.problems


def _partition(folder: Folder, name: str) -> Partition | None:
    """A published partition, if its manifest can be read: that it can is checked elsewhere."""
    try:
        file = folder / f"parts/{name}.json"
        part = PartitionManifest.from_json(read_regular(file), file)
    except (OSError, WorkError):
        return None
    return as_partition(folder, part)
