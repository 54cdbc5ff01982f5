"""A run folder made by hand, stage by stage, by the schemas: every figure of its report can be counted on paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from corpusmill.common.ids import doc_id, text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table
from corpusmill.pipeline.engine.stage import Context, Scheduler, decisions
from corpusmill.pipeline.ledger.stage import merge
from corpusmill.pipeline.report.stage import Report
from corpusmill.schemas.manifest import Counts, PublishedFile, StageManifest, manifest_name
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DOCUMENTS, INGEST_DECISIONS, KEPT, QUARANTINED, REMOVED

LOCAL = ("ingest", "filter", "dedup", "redact")


@dataclass
class Doc:
    """A record and its fate: `gone` is (stage, rule); `failed` are (rule, value, threshold) in `filter`."""

    locator: str
    text: str
    source: str = "web"
    gone: tuple[str, str] | None = None
    failed: Sequence[tuple[str, float, float]] = ()
    copy_of: Doc | None = None
    jaccard: float | None = None
    edits: Sequence[tuple[str, int, int]] = ()  # kind, offset, length
    redacted: str | None = None
    language: str | None = None
    words: int = 100
    source_id: str | None = None

    @property
    def id(self) -> bytes:
        return doc_id(self.source, self.locator)


@dataclass
class Made:
    """The run, and how to report it."""

    root: Path
    recipe: Recipe
    previous: dict[str, Folder]
    scheduler: Scheduler = field(repr=False)

    def report(self, folder: str = "report") -> Path:
        """Run the stage; the folder of its files."""
        out = Folder(self.root) / folder
        context = Context(self.recipe, Folder(self.root), out, [], self.previous, self.scheduler)
        files, _ = Report(self.recipe).run(context)
        assert [file.path for file in files] == ["report.html", "report.json", "card.md"]
        return self.root / folder

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.report() / "report.json").read_text())
        return found


def make_run(
    tmp_path: Path, scheduler: Scheduler, partitions: Sequence[Sequence[Doc]], stages: Sequence[str] = LOCAL,
    **recipe: Any,
) -> Made:  # fmt: skip
    """Publish what `stages` would have, partition by partition; `recipe` holds further keys of the recipe."""
    sources = {doc.source for docs in partitions for doc in docs} or {"web"}
    config: dict[str, Any] = {
        "name": "made",
        "sources": {name: {"paths": [f"in/{name}.jsonl"]} for name in sorted(sources)},
        "stages": [*stages, "report"],
    }
    loaded = Recipe.model_validate({**config, **recipe})
    root = Folder(tmp_path / "run")
    names = [f"{i:05d}" for i in range(len(partitions))]
    for stage in stages:
        _stage(root / stage, stage, names, partitions, loaded)
    later = [s for s in stages if s != "ingest"]
    for name, docs in zip(names, partitions, strict=True):
        ledger = merge(
            _documents(docs, "ingest"), _decided(docs, "ingest"), [_decided(docs, s) for s in later]
        )
        publish_table(root / "ledger", f"{name}.parquet", ledger)
    publish_manifest(root / "ledger", "ledger", names, Counts(), {})
    previous = {name: root / name for name in (*stages, "ledger")}
    return Made(tmp_path / "run", loaded, previous, scheduler)


def _stage(
    folder: Folder, stage: str, names: list[str], partitions: Sequence[Sequence[Doc]], recipe: Recipe
) -> None:
    counts, sources = Counts(), dict[str, Counts]()
    for name, docs in zip(names, partitions, strict=True):
        publish_table(folder, f"documents/{name}.parquet", _documents(docs, stage))
        publish_table(folder, f"decisions/{name}.parquet", _decided(docs, stage))
        if stage == "filter":
            publish_table(folder, f"signals/{name}.parquet", _signals(docs))
        for doc in _arriving(docs, stage):
            size = len(doc.text.encode())
            lost = doc.gone if doc.gone and doc.gone[0] == stage else None
            bad = lost is not None and stage == "ingest" and not lost[1].startswith("skip")
            one = Counts(
                docs_in=1, kept=lost is None, removed=lost is not None and not bad, quarantined=bad,
                bytes_in=size, bytes_kept=0 if lost else len(_text(doc, stage).encode()),
            )  # fmt: skip
            counts += one
            sources[doc.source] = sources.get(doc.source, Counts()) + one
    params = recipe.params_of(stage)
    if stage == "filter":
        rule = {
            "name": "quality.words",
            "signal": "document.words",
            "comparison": "at_least",
            "threshold": 50.0,
        }
        params["rules"] = [{**rule, "among": []}]
    publish_manifest(folder, stage, names, counts, params, sources)


def publish_manifest(
    folder: Folder, stage: str, names: list[str], counts: Counts, params: dict[str, Any],
    sources: dict[str, Counts] | None = None, files: Sequence[PublishedFile] = (),
) -> None:  # fmt: skip
    manifest = StageManifest(
        stage=stage, version="1", key=f"key-of-{stage}", params=params, inputs={}, partitions=names, counts=counts,
        per_source=sources or {}, files=list(files), seconds=len(stage) / 7,
    )  # fmt: skip
    publish_bytes(folder, manifest_name(stage), manifest.model_dump_json().encode())


def _arriving(docs: Sequence[Doc], stage: str) -> list[Doc]:
    """The documents that earlier stages left."""
    before = LOCAL[: LOCAL.index(stage)]
    return [doc for doc in docs if not (doc.gone and doc.gone[0] in before)]


def _text(doc: Doc, stage: str) -> str:
    return doc.redacted if stage == "redact" and doc.redacted is not None else doc.text


def _documents(docs: Sequence[Doc], stage: str) -> pa.Table:
    kept = [doc for doc in _arriving(docs, stage) if not (doc.gone and doc.gone[0] == stage)]
    rows = [
        {
            "doc_id": doc.id, "source": doc.source, "source_id": doc.source_id, "locator": doc.locator,
            "text": _text(doc, stage), "text_hash": text_hash(_text(doc, stage)),
            "language": doc.language if stage != "ingest" else None,
        }
        for doc in kept
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=DOCUMENTS)


def _decided(docs: Sequence[Doc], stage: str) -> pa.Table:
    rows = []
    for doc in _arriving(docs, stage):
        row: dict[str, Any] = {"doc_id": doc.id, "stage": stage}
        if doc.gone and doc.gone[0] == stage:
            bad = stage == "ingest" and not doc.gone[1].startswith("skip")
            failed = [{"stage": stage, "rule": r, "value": v, "threshold": t} for r, v, t in doc.failed]
            first: dict[str, Any] = failed[0] if failed else {}
            row |= {
                "outcome": QUARANTINED if bad else REMOVED, "rule": doc.gone[1], "failed": failed or None,
                "value": first.get("value"), "threshold": first.get("threshold"), "jaccard": doc.jaccard,
                "duplicate_of": doc.copy_of.id if doc.copy_of else None, "detail": "at byte 12" if bad else None,
            }  # fmt: skip
        elif mine := [edit for edit in doc.edits if _edits_by(edit[0]) == stage]:
            edits = [{"stage": stage, "kind": k, "offset": o, "length": n} for k, o, n in mine]
            row |= {"outcome": KEPT, "edits": edits}
        else:
            continue
        if stage == "ingest":
            row |= {"source": doc.source, "source_id": doc.source_id, "locator": doc.locator}
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=INGEST_DECISIONS) if stage == "ingest" else decisions(rows)


def _edits_by(kind: str) -> str:
    """The stage whose edits are of this kind."""
    return "dedup" if kind.startswith("dedup.") else "filter" if "." in kind else "redact"


def _signals(docs: Sequence[Doc]) -> pa.Table:
    there = _arriving(docs, "filter")
    return pa.table(
        {
            "doc_id": pa.array([doc.id for doc in there], pa.binary(16)),
            "document.words": pa.array([doc.words for doc in there], pa.int64()),
            "language.code": pa.array([doc.language for doc in there], pa.string()),
        }
    )
