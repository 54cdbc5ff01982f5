"""`report`: what the run did, as a page to look at, a file of figures and a data card."""

from __future__ import annotations

from typing import Any

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Work
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.stage import Context, GlobalStage
from corpusmill.schemas.manifest import PublishedFile, StageManifest
from corpusmill.schemas.stages import ReportParams

PASSES = 6  # over the partitions: survey, curves, examples


class Report(GlobalStage):
    """Publishes `report.html`, `report.json` (every figure shown) and `card.md`.

    Reads only what the earlier stages published, partition by partition; sections of stages that are not in
    the recipe are left out. No clock: the same run gives the same bytes. `params.card` names a further place
    for the card, outside the run's folder.
    """

    name = "report"
    version = "6"

    def key_params(self) -> dict[str, Any]:
        """The parameters, and the bytes of the label file: other labels are another report."""
        params = super().key_params()
        if self.params.labels:
            try:
                params["labels_xxh3"] = checksum(Folder(self.params.labels).read())
            except FileNotFoundError:
                params["labels_xxh3"] = None  # `run` raises for it
        return params

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        shown = ("records", "kept", "removed", "quarantined")
        return ", ".join(f"{manifest.counters[name]:,} {name}" for name in shown)

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """Passes over the ledger, signals and examples of each partition."""
        own, count = known.of(self.name), flow.partitions
        rows = flow.records * known.of("ledger").row_bytes
        work = Work(
            self.name, PASSES * count, {"mb": flow.shape.text_bytes / 1e6}, read_bytes=PASSES / 2 * rows,
            gets=2 * PASSES * count, puts=4, worker_bytes=own.base_bytes, written_bytes=1e6, kept_bytes=1e6,
            driver_bytes=count * known.survey_bytes,
        )  # fmt: skip
        return Forecast([work], flow)

    def run(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        import orjson

        from corpusmill.pipeline.report.card import card
        from corpusmill.pipeline.report.facts import gather
        from corpusmill.pipeline.report.page import render

        params: ReportParams = self.params
        facts = gather(context, params)
        figures = orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        text = card(facts).encode()
        files = [
            publish_bytes(context.folder, "report.html", render(facts).encode()),
            publish_bytes(context.folder, "report.json", figures),
            publish_bytes(context.folder, "card.md", text),
        ]
        if params.card:
            Folder(params.card).write(text)
        totals = facts["totals"]
        return files, {name: totals[name] for name in ("records", "kept", "removed", "quarantined")}


STAGE = Report
