"""The `decontaminate` stage: what of the evaluation sets stands in the corpus is found once, then taken out."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Context, LocalStage
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.stages import DecontaminateParams

if TYPE_CHECKING:
    from corpusmill.pipeline.decontaminate.apply import Decontamination
    from corpusmill.pipeline.decontaminate.evalsets import EvalFile
    from corpusmill.schemas.recipe import Recipe


class Decontaminate(LocalStage):
    """Removes or cuts documents that hold items of the evaluation sets in `against`, or only reports them.

    Publishes `index/` (hashes, no text), `hits/`, `matches/` (what of which item stands where), `contamination.json`
    and `touched_items.jsonl`. Hits do not depend on thresholds: to change one searches no text again.
    """

    name = "decontaminate"
    version = "2"
    looks_across = True

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        params: DecontaminateParams = self.params
        if not params.against:
            raise UserError(
                "decontaminate.against: missing: the evaluation files to look for, such as --against evals/"
            )

    @cached_property
    def sources(self) -> list[EvalFile]:
        """The evaluation files with their checksums; looked at once per plan."""
        from corpusmill.pipeline.decontaminate.evalsets import find_files

        return find_files(self.params.against)

    def key_params(self) -> dict[str, Any]:
        """The recipe's, with the bytes of the evaluation files in place of where they lie."""
        import unicodedata

        params = super().key_params()
        params.pop("seed")  # nothing here is drawn
        params["against"] = [[source.file.name, source.xxh3] for source in self.sources]
        return {**params, "unicode": unicodedata.unidata_version}

    def prepare(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from corpusmill.pipeline.decontaminate.prepare import run

        return run(context, self.params, self.sources, self.version)

    def transform(self, folder: Folder, partition: str) -> Decontamination:
        from corpusmill.pipeline.decontaminate.apply import Decontamination
        from corpusmill.pipeline.decontaminate.judge import MATCHES
        from corpusmill.pipeline.engine.publish import read_table

        matches = read_table(folder / f"matches/{partition}.parquet").cast(MATCHES)
        if self.params.action != "cut":
            return Decontamination(self.params, matches, partition)
        from corpusmill.pipeline.decontaminate.index import load_record
        from corpusmill.pipeline.decontaminate.prepare import Recheck

        record = load_record(folder)
        if record is None:
            raise WorkError(f"{folder}: its index is missing; run the stage again")
        again = Recheck(folder, record.key, self.params)
        return Decontamination(self.params, matches, partition, again.clean, again.words)


STAGE = Decontaminate
