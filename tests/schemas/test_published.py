"""The JSON documents of a real run are as `corpusmill.schemas` declares them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpusmill.schemas.dedup_results import DedupPlan, DedupQuality
from corpusmill.schemas.manifest import RunInputs, RunRecord, Strict, UnitManifest
from corpusmill.schemas.profile import RunProfile
from corpusmill.schemas.report import Report
from corpusmill.schemas.split import Similarity, SplitSummary
from corpusmill.schemas.tables import GROUPS
from corpusmill.schemas.tokenizer import TokenizerStats

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FILES: dict[str, type[Strict]] = {
    "manifest.json": RunRecord,
    "inputs.json": RunInputs,
    "profile.json": RunProfile,
    "ingest/units/*.json": UnitManifest,
    "dedup/plan.json": DedupPlan,
    "dedup/quality.json": DedupQuality,
    "split/split.json": SplitSummary,
    "split/similarity.json": Similarity,
    "tokenizer/stats.json": TokenizerStats,
    "report/report.json": Report,
}


@pytest.mark.parametrize("file", FILES)
def test_documents_of_a_run(file: str, quickstart_run: Path) -> None:
    found = list(quickstart_run.glob(file))
    assert found
    for path in found:
        FILES[file].model_validate_json(path.read_bytes())


def test_validation_groups_of_a_run(quickstart_run: Path) -> None:
    assert pq.read_schema(quickstart_run / "split/validation.parquet").remove_metadata() == GROUPS
