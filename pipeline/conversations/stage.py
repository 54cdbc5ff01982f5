"""`conversations`: every kept conversation as a line of JSON, in `<source>/train/` or `<source>/validation/`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from corpusmill.common.checkpoints import once
from corpusmill.common.errors import WorkError
from corpusmill.common.format import quantity
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import VALIDATION, read_validation_groups, split_of
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, over_partitions
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.stage import Context, GlobalStage, Partition
from corpusmill.pipeline.text.turns import parsed, row_of
from corpusmill.schemas.manifest import Marker, PublishedFile, StageManifest, hash_json

SUFFIX = ".jsonl"
SCRATCH = "scratch"
SIDES = ("train", "validation")
AROUND = 120  # bytes of a line besides its text


class Written(Marker):
    """A partition's marker."""

    counters: dict[str, int]


class ConversationFiles(GlobalStage):
    """Publishes `<source>/<train or validation>/<partition>.jsonl`, as `data.shards` of a fine-tuning takes the folder: a line a
    conversation, in the order of the input, with its `doc_id`, its source, the source's licence, and `fields`."""

    name = "conversations"
    version = "1"

    def key_params(self) -> dict[str, Any]:
        """The parameters, and the licences that the lines name. The seed is that of the split."""
        return {**self.recipe.params_of(self.name), "licenses": self._licenses}

    @property
    def _licenses(self) -> dict[str, str | None]:
        return {name: source.license for name, source in self.recipe.sources.items()}

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        counters = manifest.counters
        return (
            f"{quantity(counters['train'], 'conversation')} to train on, {counters['validation']:,} for validation,"
            f" {quantity(counters['turns'], 'turn')}"
        )

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        written = flow.text_bytes + flow.documents * AROUND
        work = over_partitions(
            self.name,
            "write",
            flow,
            known,
            puts=3 * flow.partitions,
            written_bytes=written,
            kept_bytes=written,
        )
        return Forecast([work], flow)

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        folder, split = context.folder, context.previous["split"]
        validation = checksum((split / VALIDATION).read())
        key = hash_json([self.version, self.key_params(), validation])
        write = _Write(folder, split, key, tuple(self.params.fields), self._licenses)
        sizes = [part.text_bytes for part in context.partitions]
        written = context.scheduler.map(write, context.partitions, "conversations: write", sizes)
        files = sorted((file for one in written for file in one.files), key=lambda file: file.path)
        counters = Counter(dict.fromkeys((*SIDES, "turns"), 0))
        for one in written:
            counters.update(one.counters)
        expected = sum(part.rows for part in context.partitions)
        if (found := sum(counters[side] for side in SIDES)) != expected:
            raise WorkError(f"conversations: {expected} documents came in, {found} are in the files")
        ours = {file.path for file in files}
        # Of other input or parameters: a fine-tuning would read them, too.
        folder.delete([e.path for e in folder.list() if e.path.endswith(SUFFIX) and e.path not in ours])
        (folder / SCRATCH).delete()
        return files, dict(sorted(counters.items()))


@dataclass(frozen=True)
class _Write:
    """Publish the lines of a partition, with a marker; a valid one is used again."""

    folder: Folder
    split: Folder
    key: str
    fields: tuple[str, ...]
    licenses: Mapping[str, str | None]

    def __call__(self, partition: Partition) -> Written:
        key = hash_json([self.key, partition.name, partition.xxh3])
        marker = self.folder / f"{SCRATCH}/{partition.name}.json"
        return once(Written, marker, key, self.folder, lambda: self._make(key, partition))

    def _make(self, key: str, partition: Partition) -> Written:
        docs = partition.read(["doc_id", "source", "cluster_id", "text", *self.fields])
        validation = split_of(docs, read_validation_groups(self.split))
        lines: dict[str, list[bytes]] = {}
        counters = Counter[str]()
        for row, held_out in zip(docs.to_pylist(), validation.tolist(), strict=True):
            side = SIDES[held_out]
            turns = parsed(row["text"])
            line = {**row_of(turns), "doc_id": row["doc_id"].hex(), "source": row["source"]}
            if license_ := self.licenses[row["source"]]:
                line["license"] = license_
            for field in self.fields:
                if row[field] is not None:
                    line[field] = orjson.loads(row[field]) if field == "metadata" else row[field]
            path = f"{row['source']}/{side}/{partition.name}{SUFFIX}"
            lines.setdefault(path, []).append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            counters.update({side: 1, f"source/{row['source']}/{side}": 1, "turns": len(turns)})
        files = [
            publish_bytes(self.folder, path, b"".join(some), rows=len(some)) for path, some in lines.items()
        ]
        return Written(key=key, files=files, counters=dict(counters))


STAGE = ConversationFiles
