"""`augment`: copies of documents to train on, beside them, in sources of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from corpusmill.common.checkpoints import once
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import quantity, rate
from corpusmill.common.ids import checksum
from corpusmill.common.perturb import parse
from corpusmill.common.storage import Folder
from corpusmill.pipeline.augment.make import OPTION, Spent, copies, maker_of
from corpusmill.pipeline.engine.copies import COPIES, named
from corpusmill.pipeline.engine.document_hash import VALIDATION, read_validation_groups, split_of
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, over_partitions
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table
from corpusmill.pipeline.engine.stage import Context, GlobalStage, Partition
from corpusmill.pipeline.engine.takedown_log import left, read_log
from corpusmill.pipeline.engine.tasks import text_bytes
from corpusmill.schemas.augment import (
    FAILED,
    MADE,
    SUFFIX,
    SUMMARY,
    UNCHANGED,
    Augmented,
    AugmentedSide,
    AugmentedSource,
    AugmentParams,
    CopyOutcome,
)
from corpusmill.schemas.manifest import Marker, PublishedFile, StageManifest, hash_json
from corpusmill.schemas.recipe import FOLDERS, Recipe

_OUTCOMES: tuple[CopyOutcome, ...] = (MADE, UNCHANGED, FAILED)


class Written(Marker):
    """A partition's marker."""

    counters: dict[str, int]
    spent: list[Spent]


class Augment(GlobalStage):
    """Publishes `documents/<partition>-copies.parquet` (copies, in sources `<source>-augmented`), `copies/<partition>.parquet` (what
    became of each copy that was to be made) and `augment.json` (`Augmented`).

    No copy is made of a validation document, and a copy is in its parent's group, so none crosses the split.
    """

    name = "augment"
    version = "1"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        for source in recipe.sources:
            if f"{source}{SUFFIX}" in recipe.sources:
                raise UserError(
                    f"sources: '{source}{SUFFIX}' is the name of {source}'s copies; give it another name"
                )

    def key_params(self) -> dict[str, Any]:
        """The parameters, the seed, and what the files of perturbations hold."""
        params: AugmentParams = self.params
        files = [parse(one.perturb, OPTION).file for one in params.copies if one.perturb is not None]
        held = {file: checksum(Folder(file).read()) for file in files if file}
        return {**super().key_params(), **({"files": held} if held else {})}

    def check(self) -> list[str]:
        """That every perturbation and function is there."""
        for one in self.params.copies:
            maker_of(one, self.recipe.seed, self.recipe.cluster.import_from)
        return []

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        lines = []
        for one in self.params.copies:
            made, unchanged, failed = (
                manifest.counters.get(f"by/{one.by}/{outcome}", 0) for outcome in _OUTCOMES
            )
            text = f"{one.by}: {quantity(made, 'copy', 'copies')}"
            for number, outcome in ((unchanged, UNCHANGED), (failed, FAILED)):
                text += f", {number:,} {outcome}" if number else ""
            lines.append(text)
        return "; ".join(lines)

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """A pass over the partitions; of a function's own time nothing is known."""
        params: AugmentParams = self.params
        share = sum(one.share * one.times for one in params.copies)
        written = share * flow.text_bytes * known.stored
        work = over_partitions(
            self.name,
            "copies",
            flow,
            known,
            puts=3 * flow.partitions,
            written_bytes=written,
            kept_bytes=written,
        )
        more = replace(flow, documents=flow.documents * (1 + share), text_bytes=flow.text_bytes * (1 + share))
        return Forecast([work], more)

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        folder, split = context.folder, context.previous["split"]
        validation = checksum((split / VALIDATION).read())
        shards = context.run / FOLDERS["shard"]
        taken = [doc_id.hex() for doc_id in read_log(shards).taken]  # no copies are made of these
        key = hash_json([self.version, self.key_params(), validation, *([taken] if taken else [])])
        write = _Write(folder, split, shards, key, self.recipe.model_dump_json())
        sizes = [part.text_bytes for part in context.partitions]
        written = context.scheduler.map(write, context.partitions, "augment: copies", sizes)
        counters = Counter[str]()
        for one in written:
            counters.update(one.counters)
        for line in _speeds([spent for one in written for spent in one.spent]):
            context.log(f"augment: {line}")
        summary = self._summary(counters)
        for by, outcomes in summary.by.items():
            if outcomes[FAILED] and not (outcomes[MADE] or outcomes[UNCHANGED]):
                raise WorkError(
                    f"augment: {by}: all {outcomes[FAILED]:,} copies failed; {folder / COPIES} says why; see that what it calls can be"
                    " reached, and run the command again"
                )
        files = [file for one in written for file in one.files]
        files.append(publish_bytes(folder, SUMMARY, summary.to_json()))
        (folder / "scratch").delete()
        return files, dict(sorted(counters.items()))

    def _summary(self, counters: Counter[str]) -> Augmented:
        sources = {}
        for source in sorted(self.recipe.sources):
            docs, size = (counters[f"source/{source}{SUFFIX}/{what}"] for what in ("documents", "bytes"))
            if docs:
                sources[f"{source}{SUFFIX}"] = AugmentedSource(
                    of=source, train=AugmentedSide(docs=docs, bytes=size)
                )
        by = {
            one.by: {outcome: counters[f"by/{one.by}/{outcome}"] for outcome in _OUTCOMES}
            for one in self.params.copies
        }
        return Augmented.model_validate({"sources": sources, "by": by})


def _speeds(spent: Sequence[Spent]) -> list[str]:
    """What each way to make copies cost, in words: time of one process."""
    lines = []
    for by in dict.fromkeys(one.by for one in spent):
        mine = [one for one in spent if one.by == by]
        seconds, documents, characters = (sum(column) for column in list(zip(*mine, strict=True))[1:])
        if documents:
            each = f"{rate(documents, seconds, 'documents')}, {rate(characters, seconds, 'characters')}"
            lines.append(f"{by}: {quantity(documents, 'document')} in {seconds:.1f} s of one process: {each}")
    return lines


@dataclass(frozen=True)
class _Write:
    """Publish the copies of a partition and their account, with a marker; a valid one is used again."""

    folder: Folder
    split: Folder
    shards: Folder  # whose log of takedowns says of what there must be no copies
    key: str
    recipe_json: str

    def __call__(self, partition: Partition) -> Written:
        key = hash_json([self.key, partition.name, partition.xxh3])
        marker = self.folder / f"scratch/{partition.name}.json"
        return once(Written, marker, key, self.folder, lambda: self._make(key, partition))

    def _make(self, key: str, partition: Partition) -> Written:
        recipe = Recipe.model_validate_json(self.recipe_json)
        ways = [
            (one, maker_of(one, recipe.seed, recipe.cluster.import_from)) for one in recipe.augment.copies
        ]
        docs = left(self.shards, partition.read())
        made = copies(docs, ways, split_of(docs, read_validation_groups(self.split)), recipe.seed)
        files, counters = [], made.counters
        if len(made.docs):
            name = named(partition.name)
            files.append(publish_table(self.folder, f"documents/{name}.parquet", made.docs))
            counters[f"partition/{name}/bytes"] = text_bytes(made.docs)
            source = made.docs["source"][0].as_py()  # a partition is of one source
            counters[f"source/{source}/documents"] += len(made.docs)
            counters[f"source/{source}/bytes"] += text_bytes(made.docs)
        if len(made.account):
            files.append(publish_table(self.folder, f"{COPIES}/{partition.name}.parquet", made.account))
        return Written(key=key, files=files, counters=dict(counters), spent=made.spent)


STAGE = Augment
