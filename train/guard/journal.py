"""journal.jsonl of a run: the guard's decisions and their reasons, in order; and what follows from them, as pure functions.

The file is replaced by one atomic write, on any store. A checkpoint records the number of entries when it was saved: a later
rollback to an earlier step has abandoned it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.guard import JournalEntry

if TYPE_CHECKING:
    from corpusmill.schemas.data import DataConfig
    from corpusmill.schemas.training import TrainConfig

JOURNAL = "journal.jsonl"
Entries = Sequence[JournalEntry]


class Journal:
    """The entries, the same in every process; `file`: None but in the process that writes."""

    def __init__(self, data: bytes, file: Folder | None, name: str = JOURNAL) -> None:
        self.entries, self._file = parse(data, name), file

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, **values: Any) -> JournalEntry:
        """Publish one more entry."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = JournalEntry(entry=len(self.entries) + 1, time=now, **values)
        self.entries.append(entry)
        if self._file:
            self._file.write(dumped(self.entries))
        return entry

    def take_over(self, data: bytes, name: str) -> None:
        """Start with another run's entries, which this run follows (`replaying`)."""
        self.entries = parse(data, name)
        self.add(kind="replay", step=0, note=name)


def parse(data: bytes, name: str) -> list[JournalEntry]:
    """The entries of a journal; raises `WorkError`, naming the line, if it is invalid."""
    entries: list[JournalEntry] = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            entries.append(JournalEntry.model_validate(orjson.loads(line)))
        except (ValueError, ValidationError):
            raise WorkError(f"{name}:{number}: no entry of a journal; restore the file to continue") from None
        if entries[-1].entry != number:
            raise WorkError(
                f"{name}:{number}: is entry {entries[-1].entry}: lines are missing; restore the file"
            )
    return entries


def dumped(entries: Entries) -> bytes:
    return b"".join(orjson.dumps(entry.dumped()) + b"\n" for entry in entries)


def read(file: Folder) -> bytes:
    """The bytes of a journal; none if there is none yet."""
    try:
        return file.read()
    except FileNotFoundError:
        return b""


def read_entries(run: Folder) -> list[JournalEntry]:
    """The entries of a run's journal."""
    return parse(read(run / JOURNAL), (run / JOURNAL).url)


def replaying(entries: Entries) -> bool:
    return any(entry.kind == "replay" for entry in entries)


def rollbacks(entries: Entries, after: int = -1) -> list[JournalEntry]:
    """Those decided at later steps than `after`."""
    return [entry for entry in entries if entry.kind == "rollback" and entry.step > after]


def skipped(entries: Entries) -> dict[int, JournalEntry]:
    """The skipped steps of the run, without those of abandoned branches."""
    found: dict[int, JournalEntry] = {}
    for entry in entries:
        if entry.kind == "skip":
            found[entry.step] = entry
        elif entry.kind == "rollback":
            found = {step: old for step, old in found.items() if step <= (entry.to_step or 0)}
    return found


def abandoned(entries: Entries, step: int, known: int) -> JournalEntry | None:
    """The rollback that abandoned the checkpoint of `step`, saved when there were `known` entries."""
    return next((e for e in rollbacks(entries) if e.entry > known and (e.to_step or 0) < step), None)


def lr_factor(entries: Entries, step: int) -> float:
    """The factor of a step's learning rate: lowered after each rollback, then linearly back to 1."""
    factor = 1.0
    for e in rollbacks(entries):
        low, until, back = e.lr_factor or 1.0, e.until_step or 0, e.back_step or 0
        if (e.to_step or 0) < step < back:
            gone = (step - until) / (back - until) if step > until else 0.0
            factor *= low + (1.0 - low) * gone
    return factor


def skips(entries: Entries, config: Mapping[int, int]) -> dict[int, int]:
    """The plan's skips: those of the config (`data.skip`), and the data of every rollback."""
    found = dict(config)
    for entry in rollbacks(entries):
        if entry.skipped:
            found = with_skip(found, entry.skipped.step, entry.skipped.batches)
    return dict(sorted(found.items()))


def with_skip(skips: Mapping[int, int], step: int, batches: int) -> dict[int, int]:
    """`skips` with `batches` more skipped before `step`, not counting those that are skipped already. Later skips keep their
    data, and so come that many steps earlier."""
    found = {step: batches}
    for at, count in skips.items():
        at = at if at <= step else max(at - batches, step)
        found[at] = found.get(at, 0) + count
    return found


def amended(data: DataConfig, entries: Entries) -> DataConfig:
    """A run's data section with the data that its rollbacks skip."""
    return data.model_copy(update={"skip": skips(entries, data.skip)})


def of_run(config: TrainConfig) -> TrainConfig:
    """The config with the data section as amended by its run's rollbacks, if there is a run."""
    entries = read_entries(Folder(config.output_url))
    return config.model_copy(update={"data": amended(config.data, entries)})


def documents_line(entry: JournalEntry) -> str:
    """Of an entry's documents, for the log: `wiki 0f3a…, 77b0…; code 1c…`."""
    return "; ".join(f"{source} {', '.join(ids)}" for source, ids in entry.documents.items())


def message(entry: JournalEntry) -> str:
    """An entry as a line of the log."""
    line = f"guard: step {entry.step}: {_WORDS[entry.kind]}"
    if entry.to_step is not None:
        line += f" to step {entry.to_step}" + (" (not known to be healthy)" if entry.healthy is False else "")
    if entry.skipped:
        line += f", passing over {entry.skipped.batches} batches before step {entry.skipped.step}"
    if entry.lr_factor is not None:
        line += f", learning rate x {entry.lr_factor:g} up to step {entry.until_step}"
    return "; ".join(filter(None, (line, reasons(entry), entry.note)))


def reasons(entry: JournalEntry) -> str:
    """The exceeded limits, in words."""
    return ", ".join(f"{r.signal} {_figure(r.value)} (limit {_figure(r.limit)})" for r in entry.why)


_WORDS = {"skip": "skipped", "rollback": "rolled back", "stop": "stopped", "resume": "resumed", "replay": "replaying"}  # fmt: skip


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
