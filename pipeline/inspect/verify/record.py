"""The record of a run: its own bytes, its signature, what it holds to a checksum, and the files that nothing names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import quantity
from corpusmill.common.ids import sha256
from corpusmill.common.signing import is_signed
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import LINEAGE, RUN, Record, below, read_record
from corpusmill.pipeline.engine.owner import OWNER
from corpusmill.pipeline.engine.record import signature_of
from corpusmill.pipeline.inspect.damage import is_there, read_present, read_regular, reported
from corpusmill.pipeline.inspect.verify.files import shown
from corpusmill.pipeline.inspect.verify.found import Verified
from corpusmill.schemas.manifest import MANIFEST, RecordSignature, RunRecord, StageManifest

SHOWN = 10  # files that belong to nothing


def check_record(
    run: Folder, manifests: Mapping[Folder, bytes], public_key: str, result: Verified
) -> Record | None:
    """The run's record, its own bytes and its signature checked; a note where there is none, of a run that is not finished.

    `manifests`: those of the stages that are there.
    """
    record = None
    with reported(result.problems, run / MANIFEST):
        record = read_record(run, read_present)
        if record is None and any(file.parent != run for file in manifests):
            result.unfinished = True
            result.notes.append(
                f"{run}: not finished: {MANIFEST} of the whole ({RUN} of a stage's command) is written last, and is not"
                " there; run the command that made it again to continue"
            )
        elif record is None:  # a stage's folder of a run, which has its own manifest alone
            result.notes += [
                f"{file}: held to no checksum here, but by the run's record" for file in manifests
            ]
    if record is None:
        if public_key:
            result.problems.append(f"{run}: no record of a run that a signature could be of")
        return None
    result.named.update((below(run, record.file), below(run, signature_of(record.file))))
    if not RunRecord.intact(record.data):
        result.problems.append(f"{record.file}: changed since it was written: its checksum of itself differs")
    _signature(record, public_key, result)
    return record


def _signature(record: Record, public_key: str, result: Verified) -> None:
    file, signer = signature_of(record.file), record.run.signed_by
    if not is_there(file):
        if signer:
            result.problems.append(f"{file}: missing, but {record.file} says that {signer} signed it")
        if public_key:
            result.problems.append(f"{record.file}: not signed, but a public key is given")
        return
    with reported(result.problems, file):
        data = read_regular(file)
        found = RecordSignature.from_json(data, file)
        if found.to_json() != data:
            raise WorkError(f"{file}: changed since it was written")
        if found.public_key != signer:
            raise WorkError(f"{file}: of {found.public_key}, but {record.file} names {signer or 'no signer'}")
        try:
            right = is_signed(record.data, found.signature, found.public_key)
        except UserError as error:  # without the library
            if public_key:
                raise  # to be reported
            result.notes.append(f"{record.file}: signed by {signer}, not checked: {error}")
            return
        if not right:
            raise WorkError(f"{file}: not a signature of {record.file} by {signer}: one of them was changed")
        if public_key and signer != public_key:
            raise WorkError(f"{file}: signed by {signer}, not by the key that is given, {public_key}")
        if not public_key:
            result.notes.append(
                f"{record.file}: signed, not checked: by {signer}, which anyone could have put there; give the signer's key with"
                " --public-key"
            )
            return
        result.signed_by = signer


def check_held(
    run: Folder, record: Record, manifests: Mapping[Folder, bytes], stages: Mapping[str, StageManifest],
    between: Sequence[Folder], result: Verified,
) -> None:  # fmt: skip
    """Compare what the record holds to a checksum: manifests of stages, `inputs.json`, `report.html`. `between`: shards of which a
    takedown is not finished, which is reported.

    Where a stage has another key than the record's, the last run was not finished: a note, and no problem.
    """
    other = [one.stage for one in record.stages if stages.get(one.stage, one).key != one.key]
    if other:
        result.unfinished = True
        result.notes.append(
            f"{record.file}: of another run than {', '.join(other)}: a later one was not finished; give its command"
            " again, and it goes on"
        )
    absent = {below(run, one.manifest) for one in record.stages if one.manifest not in manifests}
    begun = {below(run, one.manifest) for one in record.stages if one.stage in other or one.folder in between}
    for path, checksum in record.run.checksums.items():
        result.named.add(path)
        if path in absent | begun:
            continue  # reported
        with reported(result.problems, run / path):
            data = manifests.get(run / path)
            if data is None:
                data = read_regular(run / path)
                result.files += 1
                result.bytes += len(data)
            if sha256(data) != checksum:
                line = f"{run / path}: checksum differs from that of {record.file}"
                (result.notes if other and not path.endswith(MANIFEST) else result.problems).append(line)


def note_strays(run: Folder, sizes: Mapping[str, int], result: Verified) -> None:
    """A note of files that no manifest names: nobody can say what they should be."""
    if OWNER in sizes:
        result.notes.append(f"{run / OWNER}: a command is writing there, or was killed")
    lists = f"{LINEAGE}/"  # made again where it does not fit the run
    strays = [
        path for path in sizes if path not in result.named and path != OWNER and not path.startswith(lists)
    ]
    if strays:
        first = ", ".join(map(shown, strays[:SHOWN]))
        more = f" and {len(strays) - SHOWN} more" if len(strays) > SHOWN else ""
        result.notes.append(
            f"{run}: {quantity(len(strays), 'file')} that no manifest names, not checked: {first}{more}"
        )
