"""The estimate of a deduplication as part of the plan of a run."""

from __future__ import annotations

from dataclasses import replace

from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.estimate.corpus import assumed, measured
from corpusmill.pipeline.dedup.estimate.model import estimate
from corpusmill.pipeline.dedup.estimate.plan_text import DRIVER
from corpusmill.pipeline.engine.planning.constants import LOCAL, OBJECT_STORE, Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Work, manifests
from corpusmill.schemas.dedup import DedupParams

OUTPUT = "transform"


def forecast(flow: Flow, known: Constants, params: DedupParams, banding: Banding) -> Forecast:
    """The steps of the estimate, and the documents that stay. What the driver holds is held throughout."""
    copies, duplicates = (flow.copies if params.exact else 0.0), flow.duplicates
    if flow.documents < 1:
        return Forecast([], flow.kept(flow.documents, flow.text_bytes, "dedup"))
    each = flow.text_bytes / flow.documents
    corpus = assumed(int(flow.documents), each, flow.partition_bytes, duplicates, copies)
    store = OBJECT_STORE if flow.object_store else LOCAL
    found = estimate(corpus, params, banding, flow.workers, store)
    own = known.of("dedup")
    base = max(own.base_bytes, measured().worker_bytes)
    works = [
        Work(
            step.name, step.tasks, read_bytes=step.read_bytes, written_bytes=step.written_bytes,
            kept_bytes=step.written_bytes if step.name == OUTPUT else 0.0, gets=step.gets, puts=step.puts,
            worker_bytes=0.0 if step.name == DRIVER else base + step.worker_bytes,
            driver_bytes=found.driver_bytes - measured().worker_bytes, one_core=step.name == DRIVER, cpu_seconds=step.cpu_seconds,
            seconds=step.seconds,
        )
        for step in found.steps
    ]  # fmt: skip
    removed = min(flow.documents, found.exact_removed + found.near_removed)
    share = 1 - removed / flow.documents
    after = flow.kept(flow.documents * share, flow.text_bytes * share, "dedup")
    clusters = min(removed, after.documents)  # a cluster has one document at least that is removed
    return Forecast([*works, manifests(flow, known, 2)], replace(after, clusters=clusters))
