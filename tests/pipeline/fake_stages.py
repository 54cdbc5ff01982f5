"""Small honest stages with which the runner is tested: numbers in, numbers out, each with a parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import checksum, doc_id, text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.stage import (
    Context,
    GlobalStage,
    LocalStage,
    Outcome,
    SourceStage,
    Transform,
    decisions,
)
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DOCUMENTS, INGEST_DECISIONS


class Unit(NamedTuple):
    name: str
    key: str
    path: str
    number: int
    size: int = 1


class Ingest(SourceStage):
    """One unit per file, one document per line; `bad` is quarantined; two documents a partition."""

    name = "ingest"
    version = "1"
    known_inputs: ClassVar[dict[str, Any]] = {}

    def units(self) -> Sequence[Unit]:
        paths = [path for source in self.recipe.sources.values() for path in source.paths]
        return [Unit(f"{n:05d}", checksum(Path(p).read_bytes()), p, n) for n, p in enumerate(paths)]

    def inputs(self, scheduler: Any = None) -> dict[str, str]:
        return {unit.path: unit.key for unit in self.units()}

    def read(self, unit: Unit) -> Iterator[tuple[str, Outcome, int]]:
        CALLS.append(("ingest", unit.path))
        lines = Path(unit.path).read_text().splitlines()
        number = unit.number
        for chunk, start in enumerate(range(0, max(len(lines), 1), 2)):
            rows, bad = [], []
            for i, line in enumerate(lines[start : start + 2], start):
                ident = {
                    "doc_id": doc_id("s", f"{unit.path}#{i}"),
                    "source": "s",
                    "source_id": line,
                    "locator": f"f{number}#{i}",
                }
                if line == "bad":
                    bad.append({**ident, "outcome": "quarantined", "stage": "ingest", "rule": "ingest.bad"})
                else:
                    rows.append({**ident, "text": line, "text_hash": text_hash(line)})
            kept = pa.Table.from_pylist(
                [{n: r.get(n) for n in DOCUMENTS.names} for r in rows], schema=DOCUMENTS
            )
            out = [{n: r.get(n) for n in INGEST_DECISIONS.names} for r in bad]
            yield (
                f"{number:05d}-{chunk:03d}",
                Outcome(kept, pa.Table.from_pylist(out, schema=INGEST_DECISIONS)),
                len(lines),
            )


CALLS: list[tuple[str, str]] = []


class _Drop(LocalStage):
    version = "1"
    word = ""

    def transform(self, folder: Folder, partition: str) -> Transform:
        def drop(docs: pa.Table) -> Outcome:
            CALLS.append((self.name, partition))
            hit = pc.match_substring(docs["text"], self.word)
            gone = docs.filter(hit)
            rows = [
                {"doc_id": i, "outcome": "removed", "stage": self.name, "rule": f"{self.name}.{self.word}"}
                for i in gone["doc_id"].to_pylist()
            ]
            return Outcome(docs.filter(pc.invert(hit)), decisions(rows), None, {"dropped": len(gone)})

        return drop


class Filter(_Drop):
    name = "filter"
    word = "spam"


class Dedup(_Drop):
    name = "dedup"
    word = "copy"
    looks_across = True

    def prepare(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        CALLS.append(("prepare", str(len(context.partitions))))
        names = context.scheduler.map(_name, context.partitions, "names")
        return [publish_bytes(context.folder, "names.txt", "\n".join(names).encode())], {
            "prepared": len(names)
        }


class Redact(_Drop):
    name = "redact"
    word = "secret"


class Split(GlobalStage):
    name = "split"
    version = "1"

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        CALLS.append(("split", ""))
        texts = [t for p in context.partitions for t in p.read(["text"])["text"].to_pylist()]
        return [publish_bytes(context.folder, "all.txt", "\n".join(texts).encode())], {}


def _name(partition: Any) -> str:
    return str(partition.name)


FAKES = {"ingest": Ingest, "filter": Filter, "dedup": Dedup, "redact": Redact, "split": Split}


def load_fake(name: str, recipe: Recipe) -> Any:
    if name == "ledger":
        from corpusmill.pipeline.ledger.stage import STAGE

        return STAGE(recipe)
    return FAKES[name](recipe)
