"""The run that is published: finished, whole, and with everything that must not go out taken out of its documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import is_relative, read_inputs, read_record, where_made
from corpusmill.pipeline.engine.owner import in_use, owner_of
from corpusmill.pipeline.engine.planned import partitions_of
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.engine.takedown_log import read_log, under_way
from corpusmill.pipeline.ingest.discover import check_apart
from corpusmill.schemas.manifest import PublishedFile, RunRecord, StageManifest
from corpusmill.schemas.recipe import Recipe, is_local

REDACT, REPORT, SHARD, SPLIT, TOKENIZER, LEDGER = "redact", "report", "shard", "split", "tokenizer", "ledger"


@dataclass(frozen=True)
class Finished:
    """A finished run, or a stage's command with what it wrote."""

    run: Folder
    recipe: Recipe
    record: RunRecord
    record_xxh3: str
    manifests: dict[str, StageManifest]  # by stage, in the order of the run
    folders: dict[str, Folder]

    @property
    def last(self) -> str:
        """The last stage that takes partitions to partitions: its documents are the final ones."""
        return [name for name in self.manifests if is_local(name)][-1]

    @property
    def redacted(self) -> bool:
        """Whether personal data and secrets were looked for."""
        return REDACT in self.manifests

    @cached_property
    def taken(self) -> list[bytes]:
        """Ids of documents that were taken down."""
        return read_log(self.folders[SHARD]).taken if SHARD in self.folders else []

    def partitions(self) -> list[Partition]:
        """The final documents. Raises `WorkError` where a partition's manifest is gone, or was changed."""
        return partitions_of(self.folders[self.last], self.manifests[self.last])

    def files(self, stage: str) -> list[PublishedFile]:
        """The files of a stage that belong to no partition; none if it did not run."""
        return self.manifests[stage].files if stage in self.manifests else []

    def read(self, stage: str, path: str) -> bytes:
        """A file of a stage; raises `WorkError` if its bytes are not the published ones."""
        file = self.folders[stage] / path
        try:
            data = file.read()
        except FileNotFoundError:
            raise WorkError(f"{file}: missing; run `corpusmill verify {self.run}`") from None
        if all(checksum(data) != one.xxh3 for one in self.files(stage) if one.path == path):
            raise WorkError(
                f"{file}: checksum differs from the published one; run `corpusmill verify {self.run}`"
            )
        return data

    def path(self, given: str) -> Folder:
        """A path of the recipe: relative ones start where the run was made."""
        if not is_relative(given):
            return Folder(given)
        made = where_made(self.run, read_inputs(self.run).made_in)
        return Folder(f"{made}/{given}" if made else given)


def open_finished(run: Folder, unredacted: bool) -> Finished:
    """The run to publish. Raises `UserError` if it is not finished, somebody works in it, it ended early, its shards are in between,
    or it has no `redact` stage and `unredacted` does not say that this is meant; `WorkError` if a stage's manifest was changed since."""
    owner = owner_of(run)
    if owner is not None:
        raise UserError(f"{in_use(run, owner)}; publish it when that is done")
    listed = read_record(run)
    if listed is None:
        raise UserError(
            f"{run}: no finished run there; give the folder of a run whose command has ended, such as runs/quickstart"
        )
    if listed.run.ended_early:
        raise UserError(
            f"{run}: the run ended early, because a source lost more than its min_kept allows; change the recipe, and run"
            " it again"
        )
    folders = {one.stage: one.folder for one in listed.stages}
    if SHARD in folders and (request := under_way(folders[SHARD])) is not None:
        raise UserError(f"{folders[SHARD] / request}: a takedown is unfinished; give its command again first")
    manifests = listed.manifests()
    recipe = validate(Recipe, listed.run.recipe, str(listed.file))
    found = Finished(run, recipe, listed.run, checksum(listed.data), manifests, folders)
    if not found.redacted and not unredacted:
        raise UserError(
            f"{run}: the run has no redact stage, so personal data and secrets were not looked for; add `redact` to its"
            " stages, or say --unredacted"
        )
    if REPORT not in manifests:
        raise UserError(
            f"{run}: no report there, from which the data card is made; `corpusmill report {run}` writes it"
        )
    return found


def check_destination(found: Finished, dest: Folder) -> None:
    """Raise `UserError` if the destination lies in the run or in one of its inputs, or holds them."""
    if dest.within(found.run) or found.run.within(dest):
        raise UserError(
            f"{dest}: lies in the run {found.run}, or holds it; give a folder outside of it, which holds what goes out"
            " alone"
        )
    for name, source in found.recipe.sources.items():
        for path in source.places:
            check_apart(f"sources.{name}.paths", found.path(path).url, dest)
