"""100,000 small files in 100 folders: listed, hashed and read by `ingest`, in one process.

Text files of about 440 bytes. "Again" is a second run over the same folder: files whose size and time of change are as before are not hashed
again. Beside it, the least that Python can do: `os.walk`, and `open().read()` of each file. Seconds are of the clock: files come out of the
page cache, but opening them is the system's work.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from corpusmill.pipeline.ingest.discover import Known
from corpusmill.pipeline.ingest.stage import Ingest
from corpusmill.schemas.recipe import Recipe

FOLDERS, FILES = 100, 1_000
_EXPLAINED = " ".join((__doc__ or "").split("\n\n", 1)[1].split())


def make(folder: Path) -> None:
    """The files."""
    for number in range(FOLDERS):
        below = folder / f"{number:03d}"
        below.mkdir()
        for i in range(FILES):
            (below / f"{i:04d}.txt").write_bytes(b"text number %d of folder %d\n" % (i, number) * 16)


def plain(folder: Path) -> tuple[float, int]:
    """Seconds and bytes of `os.walk` and `open().read()`."""
    start, size = time.perf_counter(), 0
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:  # noqa: PTH118, PTH123 (what is measured)
                size += len(file.read())
    return time.perf_counter() - start, size


def ours(folder: Path, known: Known) -> tuple[float, float, float, int, int]:
    """Seconds of listing, hashing and reading; documents; tasks."""
    stage = Ingest(Recipe.model_validate({"name": "t", "sources": {"s": {"paths": [str(folder)]}}}))
    stage.known_inputs = known
    times = [time.perf_counter()]
    assert len(stage.files) == FOLDERS * FILES
    times.append(time.perf_counter())
    stage.inputs()
    times.append(time.perf_counter())
    units = stage.units()
    documents = sum(len(outcome.kept) for unit in units for _, outcome, _ in stage.read(unit))
    times.append(time.perf_counter())
    return times[1] - times[0], times[2] - times[1], times[3] - times[2], documents, len(units)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder)
        peer, size = plain(folder)
        known: Known = {}
        first = ours(folder, known)
        again = ours(folder, known)
    count = FOLDERS * FILES
    assert first[3] == count
    print(_EXPLAINED)
    print("\n| | list, s | hash, s | read, s | all, ms a file |\n|---|---:|---:|---:|---:|")
    for name, row in (("ingest", first), ("again", again)):
        print(f"| {name} | {row[0]:.1f} | {row[1]:.1f} | {row[2]:.1f} | {1e3 * sum(row[:3]) / count:.3f} |")
    print(f"| walk and read | | | | {1e3 * peer / count:.3f} |")
    print(f"\n{count:,} files, {size / 1e6:.0f} MB, {first[4]} tasks.")


if __name__ == "__main__":
    main()
