"""The record of a finished run: published last, held to the bytes of every manifest, and signed if there is a key.

The record names the SHA-256 of each stage's manifest, these name those of the manifests of partitions and of their files: so one
signature, of the record, covers all bytes of a run. Code that rewrites files of a finished stage gives its new manifest to the
record with `update_record`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import sha256
from corpusmill.common.signing import KEY, Signer
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import INPUTS, below, read_inputs, read_record
from corpusmill.pipeline.engine.planning import page
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.schemas import profile
from corpusmill.schemas.manifest import (
    RecordedStage,
    RecordSignature,
    RunRecord,
    StageManifest,
    manifest_name,
)
from corpusmill.schemas.recipe import FOLDERS, REPORT, Recipe

REPORT_PAGE = "report.html"


def signature_of(record: Folder) -> Folder:
    """The file beside a record that holds its signature: `manifest.sig`, `run.sig`."""
    return record.parent / f"{record.name.removesuffix('.json')}.sig"


def made_record(
    run: Folder, recipe: Recipe, manifests: Sequence[StageManifest], places: Mapping[str, Folder],
    ended_early: bool,
) -> RunRecord:  # fmt: skip
    """The record of a run whose stages are finished: `places` has their folders. The report is copied to where people look
    for it first."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        release = version("corpusmill")
    except PackageNotFoundError:
        release = "uninstalled"
    held = [
        run / INPUTS,
        run / page.FILE,
        run / profile.FILE,
        *(places[m.stage] / manifest_name(m.stage) for m in manifests),
    ]
    if REPORT in places:
        publish_bytes(run, REPORT_PAGE, (places[REPORT] / REPORT_PAGE).read())
        held.append(run / REPORT_PAGE)
    return RunRecord(
        corpusmill=release,
        recipe=recipe.model_dump(mode="json", exclude={"cluster", "output"}),
        stages={m.stage: RecordedStage(key=m.key, folder=FOLDERS.get(m.stage, m.stage)) for m in manifests},
        revisions=read_inputs(run).revisions,
        ended_early=ended_early,
        checksums=_checksums(run, held),
    )


def recorded_manifests(run: Folder) -> dict[tuple[str, str], str]:
    """(stage, key) -> the checksum that the record of the last finished run has of the stage's manifest."""
    try:
        record = read_record(run)
    except WorkError:
        record = None
    return {(one.stage, one.key): record.checksum(one.manifest) for one in record.stages} if record else {}


def _checksums(run: Folder, files: Iterable[Folder]) -> dict[str, str]:
    """Path below the run -> SHA-256, of the files that are there."""
    found = {}
    for file in files:
        try:
            found[below(run, file)] = sha256(file.read())
        except FileNotFoundError:
            continue
    return found


def publish_record(
    file: Folder, record: RunRecord, signer: Signer | None, log: Callable[[str], None]
) -> None:
    """Write the record of a run, and its signature if there is a key.

    Without a key a signature stays if the record is still the one that it signs, and else is deleted, with a line in the log.
    """
    signature = signature_of(file)
    if signer is None:
        data = record.model_copy(update={"signed_by": ""}).to_json()
        if _signed_already(file, record, data):
            return
        publish_bytes(file.parent, file.name, data)
        if signature.exists():
            file.parent.delete([signature.name])
            log(
                f"warning: {file} has changed and is no longer signed: {KEY} is not set; set it and run again"
            )
        return
    data = record.model_copy(update={"signed_by": signer.public_key}).to_json()
    publish_bytes(file.parent, file.name, data)
    signed = RecordSignature(public_key=signer.public_key, signature=signer.sign(data))
    publish_bytes(file.parent, signature.name, signed.to_json())


def _signed_already(file: Folder, record: RunRecord, unsigned: bytes) -> bool:
    """Whether the record there is this one, with a signature."""
    if not signature_of(file).exists():
        return False
    try:
        before = RunRecord.from_json(file.read(), file)
    except (FileNotFoundError, WorkError):
        return False
    return bool(before.signed_by) and before.model_copy(update={"signed_by": ""}).to_json() == unsigned


def update_record(stage: Folder, signer: Signer | None, log: Callable[[str], None]) -> None:
    """Hold the record of a finished run to the present manifest of one of its stages, whose folder is `stage`; nothing
    where no record lists it."""
    for run in (stage, stage.parent, stage.parent.parent):
        try:
            record = read_record(run)
        except WorkError:  # of a damaged one: what it held is for `verify` to say
            continue
        listed = next((one for one in record.stages if one.folder == stage), None) if record else None
        if record is not None and listed is not None:
            now = record.run.checksums | _checksums(run, [listed.manifest])
            publish_record(record.file, record.run.model_copy(update={"checksums": now}), signer, log)
            return
