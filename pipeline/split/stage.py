"""`split`: which documents are validation, decided once for the whole run, and how similar the two sides are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.format import quantity
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import SIMILARITY, SUMMARY, VALIDATION, purpose_seed
from corpusmill.pipeline.engine.found import clause, kinds, most
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Work, over_partitions
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table
from corpusmill.pipeline.engine.stage import Context, GlobalStage
from corpusmill.schemas.manifest import PublishedFile, StageManifest
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.split import MIB, SplitParams
from corpusmill.schemas.tables import GROUPS

PLACE_BYTES = 190  # of a slice on the driver, while slices are sorted by range


class Split(GlobalStage):
    """Publishes `validation.parquet` (the groups, sorted), `split.json` (documents, bytes and groups per source and
    split, and what should be known of them) and `similarity.json` (how similar validation is to train)."""

    name = "split"
    version = "3"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        params: SplitParams = self.params
        for source in params.per_source:
            if source not in recipe.sources:
                raise UserError(
                    f"split.per_source: '{source}' is not a source{nearest(source, recipe.sources)}; sources are"
                    f" {', '.join(sorted(recipe.sources))}"
                )

    def key_params(self) -> dict[str, Any]:
        """The parameters and the seed, and those of `dedup` that the comparison of the two sides takes."""
        params = super().key_params()
        if self.params.similarity_mb:
            dedup = self.recipe.dedup
            params["similarity"] = {
                "shingle": dedup.shingle, "ngram": dedup.ngram, "preset": dedup.preset,
                "threshold": dedup.similarity,
            }  # fmt: skip
        return params

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        docs = kinds(manifest.counters, "source/", "/validation_docs")
        return clause(quantity(sum(docs.values()), "validation document"), most(docs))

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """Passes over the partitions: groups are counted, the sample is drawn and compared; the driver holds the groups
        that it may choose, and reads a small file of each partition twice."""
        from corpusmill.pipeline.split.choose import MARGIN
        from corpusmill.pipeline.split.measure import FEW
        from corpusmill.pipeline.split.ranges import CLUSTER
        from corpusmill.pipeline.split.ranges import DOCUMENTS as RANGE
        from corpusmill.pipeline.split.similarity import DOCUMENTS

        params: SplitParams = self.params
        count, each = flow.partitions, flow.text_bytes / max(1.0, flow.documents)
        wanted = flow.documents * params.validation_share
        size = params.validation_mb and params.validation_mb * MIB
        if size is None and params.validation_tokens is not None:
            size = params.validation_tokens * params.bytes_per_token
        if size is not None:
            wanted = min(flow.documents, flow.sources * size / max(1.0, each))
        ranges = -(-flow.documents // RANGE)
        alone = flow.clusters if params.by == "domain" or ranges <= 1 else 0.0
        listed = MARGIN * wanted + alone + min(flow.documents, FEW * count)
        compared = min(DOCUMENTS, wanted, params.similarity_mb * MIB / max(1.0, each))
        own = known.of(self.name)
        found = min(flow.documents, compared * 2 * count) * own.row_bytes
        groups = over_partitions(self.name, "groups", flow, known)
        groups = replace(
            groups, units={"mb": flow.megabytes}, driver_bytes=groups.driver_bytes + listed * known.row_bytes
        )
        routed = flow.clusters * CLUSTER.itemsize
        clusters = Work(
            "clusters", ranges, read_bytes=routed, written_bytes=routed, gets=count * ranges, puts=count,
            worker_bytes=own.base_bytes + 4 * routed / max(1.0, ranges),
            driver_bytes=groups.driver_bytes + count * ranges * PLACE_BYTES,
        )  # fmt: skip
        works = [
            groups,
            *([clusters] if not alone and flow.clusters else []),
            over_partitions(self.name, "sample", flow, known, puts=count, written_bytes=compared * each),
            over_partitions(
                self.name, "similarity", flow, known, gets=3 * count, puts=2 * count, written_bytes=found
            ),
            Work(
                "results", 1, gets=2 * count, puts=4, one_core=True,
                read_bytes=compared * each + found, written_bytes=compared * each + 16 * wanted, kept_bytes=16 * wanted,
            ),
        ]  # fmt: skip
        return Forecast(works, replace(flow, validation=wanted))

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from corpusmill.pipeline.split.choose import decide, notes
        from corpusmill.pipeline.split.similarity import similarity

        params: SplitParams = self.params
        choice, validation = decide(context, params, purpose_seed(self.recipe.seed, "split"))
        groups = pc.unique(validation["group"]).sort()
        sources = choice.sources()
        messages = notes(choice, params)
        counters = {"validation_groups": len(groups), "sources_without_validation": 0}
        for source, splits in sources.items():
            for split, numbers in splits.items():
                counters |= {f"source/{source}/{split}_{what}": number for what, number in numbers.items()}
            counters["sources_without_validation"] += not splits["validation"]["docs"]
        summary = {
            "sources": sources, "by": params.by, "wanted_bytes": choice.wanted, "notes": messages,
            "largest_component": choice.made.largest,
        }  # fmt: skip
        files = [
            publish_table(context.folder, VALIDATION, pa.Table.from_arrays([groups], schema=GROUPS)),
            publish_bytes(context.folder, SUMMARY, _json(summary)),
        ]
        found = similarity(context, params, validation, files[0], self.version)
        if found is not None:
            files.append(publish_bytes(context.folder, SIMILARITY, _json(found)))
            messages = [*messages, found["sentence"]]
            counters |= {
                "similarity_compared": found["compared"],
                "similarity_above": found["jaccard"]["above"],
            }
        for line in messages:
            context.log(f"split: {line}")
        return files, counters


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


STAGE = Split
