"""What of a document is private: which columns go out, and what is done to them before."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from corpusmill.pipeline.inspect.publication.finished import REDACT, Finished
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.publication import CARRIED, PUBLISHED_DOCUMENTS


@dataclass(frozen=True)
class Cleaning:
    """The columns that go out, and the key of what is done to them. Small and picklable."""

    columns: tuple[str, ...]

    @property
    def key(self) -> str:
        """A hash of all that the cleaned columns depend on besides the documents."""
        return hash_json([*self.columns])

    def table(self, docs: pa.Table) -> pa.Table:
        """The documents as they may go out, with the same columns and rows."""
        return docs


def cleaning_of(found: Finished, unredacted: bool) -> Cleaning:
    """What a run's documents need: columns that the record carried go out where `redact` read them (`redact.fields`), or where
    `unredacted` says that all may."""
    fields = found.manifests[REDACT].params.get("fields", []) if found.redacted else []
    read = CARRIED if unredacted else fields
    return Cleaning(tuple(n for n in PUBLISHED_DOCUMENTS.names if n not in CARRIED or n in read))
