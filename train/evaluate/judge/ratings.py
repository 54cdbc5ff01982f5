"""The file of ratings: a JSON line each, written and synchronised at once, so that neither a kill nor a power cut loses one."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from io import FileIO
from pathlib import Path

from corpusmill.common.errors import UserError, WorkError
from corpusmill.schemas.judging import Judgement, Preference


class Ratings:
    """Of one file, which no other process may write to meanwhile. `rows`: what it held, and what was added."""

    def __init__(self, file: Path) -> None:
        """Opens or creates it. A last line without an end, of a process that was killed while it wrote, is cut off. Raises
        `UserError` for a file that another process has open, and for one that holds something else."""
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file: FileIO = file.open("a+b", buffering=0)
        except OSError as error:
            raise UserError(f"{file}: cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.seek(0)
            data = self._file.readall()
            whole = data[: data.rfind(b"\n") + 1]
            self.rows = parsed(whole, file)
        except BlockingIOError:
            self._file.close()
            raise UserError(
                f"{file}: another `corpusmill judge` writes to it; give another --ratings"
            ) from None
        except UserError:
            self._file.close()
            raise
        self._file.truncate(len(whole))

    def add(self, row: Judgement) -> None:
        """Raises `WorkError`, and leaves the file as it was, if the disk is full or the like."""
        line = row.model_dump_json().encode() + b"\n"
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(size)
            raise WorkError(f"{self._file.name}: cannot be written: {error.strerror}") from None
        self.rows.append(row)

    def close(self) -> None:
        self._file.close()


def parsed(data: bytes, where: object) -> list[Judgement]:
    """The ratings of a file's bytes. Raises `UserError` naming the line that is none."""
    return [
        Judgement.from_json(line, f"{where}: line {number}", UserError)
        for number, line in enumerate(data.split(b"\n"), 1)
        if line.strip()
    ]


def read(files: Iterable[Path]) -> list[Judgement]:
    """The ratings of several files. An unfinished last line, which a running `judge` may be writing, is left out."""
    found = []
    for file in files:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise UserError(f"{file}: cannot be read: {error.strerror}") from None
        found += parsed(data[: data.rfind(b"\n") + 1], file)
    return found


def latest(rows: Iterable[Judgement]) -> list[Judgement]:
    """The last rating of each rater on each pair of two models, in the order of the first ones. Models may have the same texts: a pair
    of those is another one."""
    return _last(rows, lambda row: (row.rater, row.pair, row.models))


def latest_of_texts(rows: Iterable[Judgement]) -> list[Judgement]:
    """Likewise of each pair of texts, whichever models they are of."""
    return _last(rows, lambda row: (row.rater, row.pair))


def _last(rows: Iterable[Judgement], key: Callable[[Judgement], Hashable]) -> list[Judgement]:
    found: dict[Hashable, Judgement] = {}
    for row in rows:
        found[key(row)] = row
    return list(found.values())


def labelled(rows: Sequence[Judgement]) -> tuple[list[Judgement], dict[str, list[str]]]:
    """The ratings with models of one name but other weights under names of their own; and these names, by the one that they had."""
    versions: dict[str, set[str | None]] = {}
    for row in rows:
        for name, weights in row.models:
            versions.setdefault(name, set()).add(weights)
    several = {name: found for name, found in versions.items() if len(found) > 1}

    def label(name: str, weights: str | None) -> str:
        return f"{name} ({weights[:8] if weights else 'texts of a file'})" if name in several else name

    named = [
        row.model_copy(update={"a": label(row.a, row.weights_a), "b": label(row.b, row.weights_b)})
        for row in rows
    ]
    return named, {name: sorted(label(name, one) for one in found) for name, found in several.items()}


def preferences(rows: Iterable[Judgement]) -> list[Preference]:
    """Of each pair on which more raters prefer one text than the other, that text and the other one, in the order of the ratings."""
    votes: dict[str, int] = {}
    texts: dict[str, tuple[str, str, str]] = {}
    for row in latest_of_texts(rows):
        prompt, a, b = texts.setdefault(row.pair, (row.prompt, row.text_a, row.text_b))
        turned = (
            -1 if (row.text_a, row.text_b) != (a, b) else 1
        )  # from a file in which the models are the other way round
        votes[row.pair] = votes.get(row.pair, 0) + turned * {"a": 1, "b": -1}.get(row.choice, 0)
    found = []
    for pair, (prompt, a, b) in texts.items():
        if vote := votes[pair]:
            chosen, rejected = (a, b) if vote > 0 else (b, a)
            found.append(Preference(prompt=prompt, chosen=chosen, rejected=rejected))
    return found
