"""`report`: what the run did, as a page to look at, a file of figures and a data card."""

from __future__ import annotations

from typing import Any

from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.stage import Context, GlobalStage
from corpusmill.schemas.manifest import PublishedFile
from corpusmill.schemas.stages import ReportParams


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
