"""metrics.jsonl of a run, on any store: writing and reading its rows."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from corpusmill.common.errors import WorkError

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder

TAIL = 50  # rows that a checkpoint holds, in case the file loses them


class Sink(Protocol):
    """Takes rows in the order of their steps; a step lower than the last one follows a rollback."""

    def write(self, row: dict[str, Any]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class MetricsLog:
    """Rows of metrics.jsonl, each step at most once; they also go to the sinks."""

    def __init__(self, run: Folder, rows: list[dict[str, Any]], sinks: list[Sink]) -> None:
        self.file, self.rows, self._sinks = run / "metrics.jsonl", rows, sinks
        self._stream: IO[bytes] | None = None
        self.flush()
        if run.local:
            self._stream = Path("/" + self.file.path).open("ab")  # noqa: SIM115 (closed by `close`)

    def write(self, row: dict[str, Any]) -> None:
        """Add a row; on a local disk it is written at once, on an object store with the next `flush`."""
        self.rows.append(row)
        if self._stream:
            self._stream.write(_line(row))
            self._stream.flush()
        for sink in self._sinks:
            sink.write(row)

    def flush(self) -> None:
        """Publish all rows."""
        if self._stream is None:
            self.file.write(b"".join(map(_line, self.rows)))
        for sink in self._sinks:
            sink.flush()

    def tail(self) -> list[dict[str, Any]]:
        """The last rows, for a checkpoint."""
        return self.rows[-TAIL:]

    def close(self) -> None:
        self.flush()
        if self._stream:
            self._stream.close()
        for sink in self._sinks:
            sink.close()


def _line(row: dict[str, Any]) -> bytes:
    import orjson  # here: benches import this module where nothing but torch and numpy is installed

    return orjson.dumps(row) + b"\n"


def read_metrics(run: Folder) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl; a last line cut short by a kill is left out."""
    import orjson

    try:
        data = (run / "metrics.jsonl").read()
    except FileNotFoundError:
        return []
    rows = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            if line:
                rows.append(dict(orjson.loads(line)))
        except ValueError:
            if number < len(lines):
                raise WorkError(
                    f"{run / 'metrics.jsonl'}:{number}: not JSON; move the file away to continue"
                ) from None
    return rows


def rows_up_to(run: Folder, step: int, tail: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a run up to `step`, in order: those of the file, and those of a checkpoint's `tail` that it lost."""
    rows = {row["step"]: row for row in [*tail, *read_metrics(run)]}
    return [rows[at] for at in sorted(rows) if at <= step]


def flatten(row: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    """(`loss/wiki`, number) pairs of the numbers in a row."""
    pairs: list[tuple[str, float]] = []
    for name, value in row.items():
        if isinstance(value, dict):
            pairs += flatten(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            pairs.append((f"{prefix}{name}", float(value)))
    return pairs
