"""The ledger of whole runs: one row a record, every stage's counts per source, edits that can be made again."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.schemas.manifest import Counts, StageManifest
from tests.conftest import shared
from tests.e2e.cli import RECIPE, corpusmill

# Every stage that removes documents edits others as well.
EDITING = """\
  cut_lines: true
dedup:
  lines: {unit: line}
"""


@pytest.fixture(scope="session")
def edited(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The folder of a run whose local stages all edit text."""

    def make(folder: Path) -> None:
        head, _, tail = RECIPE.format(corpus=corpus, output=folder / "run").partition("split:")
        assert head.endswith("qa: [c4, fineweb]}\n") and tail
        recipe = folder / "edited.yaml"
        recipe.write_text(f"{head}{EDITING}stages: [ingest, filter, dedup, redact]\n")
        corpusmill("run", recipe, "--workers", "0")

    return shared(tmp_path_factory, "edited", make) / "run"


def rows(run: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    files = sorted((run / "ledger").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]


def manifests(run: Path) -> dict[str, StageManifest]:
    """Of the local stages, in their order."""
    recipe = json.loads((run / "manifest.json").read_text())["recipe"]
    found = {}
    for stage in recipe["stages"]:
        if (run / stage / "parts").is_dir():
            found[stage] = StageManifest.model_validate_json((run / stage / "manifest.json").read_bytes())
    return found


@pytest.mark.parametrize("name", ["finished", "edited"])
def test_every_source_adds_up_at_every_stage(name: str, request: pytest.FixtureRequest) -> None:
    run: Path = request.getfixturevalue(name)
    ledger, stages = rows(run, ["doc_id", "source", "outcome", "stage"]), manifests(run)
    assert list(stages)[:4] == ["ingest", "filter", "dedup", "redact"]
    assert len(ledger) == len({row["doc_id"] for row in ledger}) == stages["ingest"].counts.docs_in
    decided = Counter(
        (row["source"], row["stage"], row["outcome"]) for row in ledger if row["outcome"] != "kept"
    )
    left = Counter(row["source"] for row in ledger)
    for stage, manifest in stages.items():
        assert sum(manifest.per_source.values(), Counts()).kept == manifest.counts.kept
        for source in {*left, *manifest.per_source}:
            counts = manifest.per_source.get(source, Counts())
            removed, quarantined = decided[source, stage, "removed"], decided[source, stage, "quarantined"]
            assert (counts.docs_in, counts.removed, counts.quarantined) == (
                left[source],
                removed,
                quarantined,
            )
            left[source] -= removed + quarantined
            assert counts.kept == left[source]
    assert left == Counter(row["source"] for row in ledger if row["outcome"] == "kept")
    assert json.loads(corpusmill("verify", run, "--json").stdout)["problems"] == []


def test_edits_give_the_text_of_the_next_stage(edited: Path) -> None:
    """What filter and dedup cut are spans of the text as each got it; of redact's the tag is checked."""
    texts = {stage: _texts(edited / stage) for stage in ("ingest", "filter", "dedup", "redact")}
    before = {"filter": "ingest", "dedup": "filter", "redact": "dedup"}
    seen: Counter[str] = Counter()
    for row in rows(edited, ["doc_id", "edits"]):
        for stage, earlier in before.items():
            edits = [edit for edit in row["edits"] or () if edit["stage"] == stage]
            old, new = texts[earlier].get(row["doc_id"]), texts[stage].get(row["doc_id"])
            if new is None:
                continue
            assert old is not None
            kept, end = [], 0
            for edit in sorted(edits, key=lambda edit: edit["offset"]):
                assert edit["offset"] >= end and edit["length"] > 0
                kept.append(old[end : edit["offset"]])
                end = edit["offset"] + edit["length"]
            kept.append(old[end:])
            seen[stage] += len(edits)
            if stage == "redact":
                place = 0
                for piece in kept:
                    place = new.index(piece, place) + len(piece)
            else:
                assert "".join(kept) == new
    assert all(seen[stage] > 5 for stage in before)


def _texts(stage: Path) -> dict[bytes, str]:
    tables = [
        pq.read_table(file, columns=["doc_id", "text"]) for file in sorted((stage / "documents").iterdir())
    ]
    return {row["doc_id"]: row["text"] for table in tables for row in table.to_pylist()}


def test_why_tells_of_every_stage(edited: Path) -> None:
    """A document that several stages edited, and one that failed several rules: each with its values."""
    ledger = rows(edited)
    most = max(
        ledger, key=lambda row: (row["outcome"] == "kept", len({e["stage"] for e in row["edits"] or ()}))
    )
    stages = {edit["stage"] for edit in most["edits"]}
    assert len(stages) >= 2
    message = corpusmill("why", most["doc_id"].hex(), "--run", edited).stdout
    assert "kept        by every stage" in message and "signal      gopher.word_count = " in message
    assert message.count("  edited  ") == len(most["edits"]) and all(
        f"({stage})" in message for stage in stages
    )
    worst = max(ledger, key=lambda row: len(row["failed"] or ()))
    message = corpusmill("why", worst["doc_id"].hex(), "--run", edited).stdout
    assert message.count("  failed  ") == len(worst["failed"]) > 3
    for failed in worst["failed"]:
        assert f"failed      {failed['rule']}: {failed['value']:.6g} against " in message
    assert f"removed     at filter by {worst['rule']} (value {worst['value']:.6g}" in message
    later = [
        row for row in ledger if row["outcome"] == "removed" and row["stage"] == "dedup" and row["edits"]
    ]
    assert later  # lines were cut at filter, and the document removed as a copy after it
    message = corpusmill("why", later[0]["doc_id"].hex(), "--run", edited).stdout
    assert "removed     at dedup" in message and "(filter)" in message and "duplicate   of " in message


def test_what_if_on_a_run_and_on_a_stages_output(finished: Path, corpus: Path, tmp_path: Path) -> None:
    asked = ["--set", "filter.thresholds.gopher_quality.word_count_min=20", "--json"]
    change = [*asked, "--workers", "0"]
    found = json.loads(corpusmill("what-if", finished.parent / "small.yaml", *change).stdout)
    assert found["back"]["documents"] > 0 == found["gone"]["documents"]
    assert found["changes"] == {
        "filter.thresholds.gopher_quality.word_count_min": {"run": 50.0, "asked": 20.0}
    }
    assert found["tokens"]["measured_on"] == "shards" and found["total"]["after"]["tokens"] > 0
    exact = json.loads((finished / "shards/index.json").read_text())["sets"]
    assert found["tokens"]["kept_in_the_end"] == sum(entry["ntokens"] for entry in exact)
    more = ["--set", "filter.thresholds.gopher_quality.word_count_min=300", "--json", "--examples", "9999"]
    gone = json.loads(corpusmill("what-if", "--run", finished, *more, "--workers", "0").stdout)["gone"]
    ids = {bytes.fromhex(row["doc_id"]) for row in gone["examples"]}
    assert len(ids) == gone["documents"] > gone["kept_in_the_end"] > 0
    ledger = rows(finished, ["doc_id", "outcome", "stage", "duplicate_of"])
    assert gone["kept_in_the_end"] == sum(row["outcome"] == "kept" for row in ledger if row["doc_id"] in ids)
    assert gone["with_copies"] == len(ids & {row["duplicate_of"] for row in ledger}) > 0
    out = tmp_path / "out"
    corpusmill("filter", corpus / "faq.jsonl.zst", out, "--workers", "0", "--rules", "gopher_quality", "-q")
    found = json.loads(corpusmill("what-if", "--run", out, *change).stdout)
    assert found["tokens"] is None and found["back"]["documents"] > 0
    one, two = (corpusmill("what-if", "--run", out, *asked, "--workers", n).stdout for n in ("0", "2"))
    assert one == two
    wrong = corpusmill(
        "what-if", "--run", out, "--set", "dedup.similarity=0.5", "--workers", "0", check=False
    )
    assert (
        wrong.returncode == 2 and "dedup must run again" in wrong.stderr and "Traceback" not in wrong.stderr
    )


def test_verify_finds_an_outcome_that_no_stage_gave(edited: Path, tmp_path: Path) -> None:
    """A row of the ledger changed, and its checksum with it: only the counts of the stages tell."""
    copy = tmp_path / "run"
    shutil.copytree(edited, copy)
    folder = Folder(copy / "ledger")
    manifest = json.loads((folder / "_manifest.json").read())
    file = manifest["files"][0]["path"]
    table = read_table(folder / file)
    outcomes = table["outcome"].to_pylist()
    outcomes[outcomes.index("kept")] = "removed"
    place = table.schema.get_field_index("outcome")
    bent = table.set_column(place, table.schema.field(place), pa.array(outcomes, pa.string()))
    manifest["files"][0] = json.loads(publish_table(folder, file, bent).model_dump_json())
    (folder / "_manifest.json").write(json.dumps(manifest).encode())
    result = corpusmill("verify", copy, check=False)
    assert result.returncode == 1 and "the stages count" in result.stderr
