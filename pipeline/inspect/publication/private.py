"""What of a publication is private: columns cleaned as the run's `redact` cleans texts, and the search for what it recognised in all
that was written, before anything is finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.inspect.private import Found, known_of_run, search
from corpusmill.pipeline.inspect.publication.finished import REDACT, Finished
from corpusmill.pipeline.redact.clean import Cleaner

CLEANED = ("url", "date", "metadata")  # of the columns that go out those that hold what the record carried
FILES = 64  # searched by a task
SHOWN = 5  # files in an error


@dataclass(frozen=True)
class Cleaning:
    """What is done to documents before they go out. Small and picklable; the run is None if it has no `redact`."""

    run: Folder | None
    key: str  # a hash of all that the result depends on besides the documents

    def table(self, docs: pa.Table) -> pa.Table:
        """The documents as they may go out, with the same columns and rows."""
        cleaner = None if self.run is None else _cleaner(self.run)
        return docs if cleaner is None else cleaner.table(docs, CLEANED)


@lru_cache(maxsize=1)
def _cleaner(run: Folder) -> Cleaner | None:
    return Cleaner.of_run(run)


def cleaning_of(found: Finished) -> Cleaning:
    """What a run's documents need. Raises `UserError` if the key of its pseudonyms is not in the environment."""
    if not found.redacted:
        return Cleaning(None, "")
    Cleaner.of_run(found.run)  # here, rather than in a worker
    return Cleaning(found.run, found.manifests[REDACT].key)


def search_originals(
    found: Finished, dest: Folder, paths: list[str], scheduler: Scheduler, log: Callable[[str], None]
) -> bool:
    """Look in all these files for what `redact` recognised anywhere in the run; whether there was a set to look for.

    Raises `WorkError`, with kinds and files but no value, if any of it is left.
    """
    if not found.redacted or known_of_run(found.run) is None:
        return False
    groups = [paths[start : start + FILES] for start in range(0, len(paths), FILES)]
    results = scheduler.map(partial(_search, found.run, dest), groups, "publish: search")
    counts = sum((Counter(one.counts) for one in results), Counter[str]())
    for line in (line for one in results for line in one.skipped):
        log(f"warning: not searched: {line}")
    if counts:
        where = list(dict.fromkeys(f"{find.file} ({find.first})" for one in results for find in one.finds))
        more = f" and {len(where) - SHOWN} more places" if len(where) > SHOWN else ""
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
        raise WorkError(
            f"{dest}: not finished: what redact recognised is still in it: {kinds}; in {', '.join(where[:SHOWN])}{more};"
            " take it out of the input or the recipe, and run again"
        )
    return True


def _search(run: Folder, dest: Folder, paths: list[str]) -> Found:
    known = known_of_run(run)
    assert known is not None  # the driver looked
    return search(dest, known, paths)
