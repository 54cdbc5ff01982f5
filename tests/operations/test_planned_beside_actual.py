"""A run shows its plan before it begins, and what it used beside it when it ends: on the console, in manifests and on a page."""

from __future__ import annotations

import json
from pathlib import Path

from corpusmill.common.costs import START
from corpusmill.common.ids import sha256
from corpusmill.schemas.manifest import StageManifest, manifest_name
from corpusmill.schemas.profile import RunProfile
from tests.e2e.cli import started

STAGES = ("ingest", "redact", "ledger")


def test_planned_and_actual(tmp_path: Path) -> None:
    documents = tmp_path / "docs.jsonl"
    text = (
        "The history of the harbour is long, and much of it is told in letters of those who lived there. "
        * 20
    )
    documents.write_text("".join(f'{{"id": "{n}", "text": "{n} {text}"}}\n' for n in range(2000)))
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"name: r\noutput: {tmp_path}/out\nstages: [ingest, redact, report]\n"
        f"sources: {{web: {{paths: [{documents}]}}}}\n"
    )
    dry = started("run", recipe, "--workers", 2, "--dry-run")
    assert "plan: about" in dry.stderr and not (tmp_path / "out").exists()
    costs = {
        row["stage"]: row["planned"]
        for row in json.loads(started("run", recipe, "--dry-run", "--json").stdout)
    }
    assert costs["redact"]["written_bytes"] > 0

    done = started("run", recipe, "--workers", 2, "--profile")
    assert "plan: about" in done.stderr
    lines = done.stderr.splitlines()
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("stage  ")) :]
    assert [line.split()[0] for line in table[1 : len(STAGES) + 3]] == [*STAGES, "report", "total"]
    page = (tmp_path / "out/resources.html").read_text()
    for name in STAGES:
        folder = tmp_path / "out" / name
        manifest = StageManifest.model_validate_json((folder / manifest_name(name)).read_bytes())
        assert manifest.resources is not None and manifest.resources.planned is not None, name
        actual = manifest.resources.actual
        stored = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        assert stored <= actual.written_bytes <= 3 * stored + 100_000, name
        assert 50e6 < actual.worker_bytes < 8e9 and 50e6 < actual.driver_bytes < 8e9
        assert actual.cpu_seconds > 0 and actual.tasks >= 1 and f'<td class="name">{name}</td>' in page
    report = (tmp_path / "out/report.html").read_bytes()
    assert report == (tmp_path / "out/report/report.html").read_bytes() and b"resources.html" in report

    data = (tmp_path / "out/profile.json").read_bytes()
    profile = RunProfile.model_validate_json(data)
    assert profile.seconds > 0 and len(profile.processes) == 3 and 'id="profile"' in page
    phases = {(one.stage, one.phase) for process in profile.processes for one in process.phases}
    assert {("ingest", "publishing"), ("redact", "transform"), ("redact", "manifest"), ("", START)} <= phases
    shown = [line for line in lines if line.startswith("run itself") or "CPU s of 3 processes" in line]
    assert len(shown) == 2 and max(map(len, lines[lines.index(shown[0]) :])) <= 80
    record = json.loads((tmp_path / "out/manifest.json").read_bytes())
    assert record["checksums"]["profile.json"] == sha256(data)

    again = started("run", recipe, "--workers", 2, "--profile")
    assert "nothing to do" in again.stderr and "plan:" not in again.stderr and shown[0] in again.stderr
    assert (tmp_path / "out/profile.json").read_bytes() == data
    assert (tmp_path / "out/resources.html").read_text() == page
