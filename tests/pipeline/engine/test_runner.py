"""What runs again, what does not, and what a killed run leaves, on small stages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import corpusmill.pipeline.engine.runner
import corpusmill.pipeline.engine.tasks
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.pipeline.inspect.why import explain, why
from corpusmill.schemas.recipe import Recipe
from tests.conftest import Serial
from tests.pipeline import fake_stages
from tests.pipeline.fake_stages import CALLS, load_fake


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(corpusmill.pipeline.engine.runner, "load_stage", load_fake)
    monkeypatch.setattr(corpusmill.pipeline.engine.tasks, "load_stage", load_fake)
    corpusmill.pipeline.engine.tasks._stage.cache_clear()
    CALLS.clear()
    yield
    corpusmill.pipeline.engine.tasks._stage.cache_clear()


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("a\nspam b\nc copy\nbad\nd secret\n")
    two.write_text("e\nf\n")
    return [str(one), str(two)]


def job(tmp_path: Path, inputs: list[str], **changes: Any) -> Run:
    config = {
        "name": "t", "sources": {"s": {"paths": inputs}}, "stages": ["ingest", "filter", "dedup", "redact", "split"],
        **changes,
    }  # fmt: skip
    return Run(Recipe.model_validate(config), Folder(tmp_path / "run"), Serial(), replace=True)


def bytes_below(
    folder: Path,
    without: tuple[str, ...] = ("manifest.json", "parts", "inputs.json", "resources.html", "profile.json"),
) -> dict[str, bytes]:
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and not any(w in f.parts for w in without)
    }


def test_a_whole_run_conserves_every_record(tmp_path: Path, inputs: list[str]) -> None:
    manifests = {m.stage: m for m in job(tmp_path, inputs).execute()}
    assert manifests["ingest"].counts.model_dump(exclude={"bytes_in", "bytes_kept"}) == {
        "docs_in": 7, "kept": 6, "removed": 0, "quarantined": 1,
    }  # fmt: skip
    kept = {name: m.counts.kept for name, m in manifests.items() if m.partitions}
    assert kept == {"ingest": 6, "filter": 5, "dedup": 4, "redact": 3}
    assert manifests["dedup"].counters == {"prepared": 4, "dropped": 1}
    assert manifests["redact"].per_source["s"].removed == 1
    rows = [
        r for f in sorted((tmp_path / "run/ledger").glob("*.parquet")) for r in pq.read_table(f).to_pylist()
    ]
    outcomes = sorted((r["source_id"], r["outcome"], r["stage"]) for r in rows)
    assert outcomes == [
        ("a", "kept", "ingest"), ("bad", "quarantined", "ingest"), ("c copy", "removed", "dedup"),
        ("d secret", "removed", "redact"), ("e", "kept", "ingest"), ("f", "kept", "ingest"),
        ("spam b", "removed", "filter"),
    ]  # fmt: skip
    checked = verify(Folder(tmp_path / "run"))
    assert checked.problems == [] and checked.files > 20


def test_the_profile_of_a_run_begins_with_the_run(tmp_path: Path, inputs: list[str]) -> None:
    """Not with the process, which did other things before, except where a command is the process."""
    while time.process_time() < 1.0:
        pass
    start = time.process_time()
    run = job(tmp_path, inputs)
    run.execute()
    profile = run.read_profile()
    assert profile is not None and profile.processes[0].process == "driver"
    assert 0 < profile.cpu_seconds <= time.process_time() - start + 0.01
    stages = {one.stage for one in profile.processes[0].phases}
    assert {"", "ingest", "filter", "dedup", "redact", "ledger", "split"} <= stages


def test_a_second_run_does_nothing(tmp_path: Path, inputs: list[str]) -> None:
    job(tmp_path, inputs).execute()
    before = bytes_below(tmp_path / "run", without=())
    CALLS.clear()
    again = job(tmp_path, inputs)
    planned = again.plan()
    assert all(entry.done for entry in planned)
    again.execute(planned)
    assert CALLS == [] and bytes_below(tmp_path / "run", without=()) == before


def test_dry_run_writes_nothing(tmp_path: Path, inputs: list[str]) -> None:
    planned = job(tmp_path, inputs).plan()
    assert [entry.why for entry in planned] == ["not run yet"] * 6
    assert not (tmp_path / "run").exists()


def test_a_changed_parameter_redoes_exactly_what_depends_on_it(tmp_path: Path, inputs: list[str]) -> None:
    job(tmp_path, inputs).execute()
    CALLS.clear()
    changed = job(tmp_path, inputs, redact={"replacement": "pseudonym"})
    planned = changed.plan()
    assert {e.name: e.why for e in planned if e.why} == {
        "redact": "parameters changed: replacement", "ledger": "input changed: redact", "split": "input changed: redact",
    }  # fmt: skip
    changed.execute(planned)
    assert {name for name, _ in CALLS} == {"redact", "split"}
    CALLS.clear()
    job(tmp_path, inputs, redact={"replacement": "pseudonym"}, split={"validation_share": 0.5}).execute()
    assert {name for name, _ in CALLS} == {"split"}


def test_changed_input_is_noticed_and_stale_partitions_go(tmp_path: Path, inputs: list[str]) -> None:
    job(tmp_path, inputs).execute()
    Path(inputs[0]).write_text("a\n")
    again = job(tmp_path, inputs)
    planned = again.plan()
    assert planned[0].why.startswith("input changed") and "one.txt" in planned[0].why
    again.execute(planned)
    names = sorted(f.stem for f in (tmp_path / "run/redact/documents").iterdir())
    assert names == ["00000-000", "00001-000"]
    assert verify(Folder(tmp_path / "run")).problems == []


@pytest.mark.parametrize(
    "lost", ["filter/parts/00000-000.json", "filter/documents/00000-001.parquet", "dedup/manifest.json"]
)
def test_what_is_missing_is_made_again_with_the_same_bytes(
    tmp_path: Path, inputs: list[str], lost: str
) -> None:
    job(tmp_path, inputs).execute()
    before = bytes_below(tmp_path / "run")
    (tmp_path / "run" / lost).unlink()
    CALLS.clear()
    job(tmp_path, inputs).execute()
    assert bytes_below(tmp_path / "run") == before
    assert not any(name == "ingest" for name, _ in CALLS), "ingest was there, nothing had to be read again"


def test_what_a_killed_writer_had_begun_goes(tmp_path: Path, inputs: list[str]) -> None:
    """A local write is a temporary file and a rename. What is nobody's stays, where a folder may be the user's."""
    begun = ["split/all.txt#1", "split/deep/x#23", "dedup/names.txt#1", "filter/parts/00000-000.json#2"]
    others = ["dedup/notes#1", "dedup/#1", "ledger.txt#1"]
    for name in (*begun, *others):
        file = tmp_path / "run" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("half")
    job(tmp_path, inputs).execute()
    assert [name for name in (*begun, *others) if (tmp_path / "run" / name).exists()] == others


def test_a_truncated_partition_is_made_again(tmp_path: Path, inputs: list[str]) -> None:
    job(tmp_path, inputs).execute()
    before = bytes_below(tmp_path / "run")
    file = tmp_path / "run/ingest/documents/00000-001.parquet"
    file.write_bytes(file.read_bytes()[:-7])
    job(tmp_path, inputs).execute()
    assert bytes_below(tmp_path / "run") == before


def test_a_flipped_bit_stops_the_reader_and_is_named_by_verify(tmp_path: Path, inputs: list[str]) -> None:
    job(tmp_path, inputs).execute()
    file = tmp_path / "run/filter/documents/00000-000.parquet"
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(bytes(data))
    assert any(
        "filter/documents/00000-000.parquet: checksum" in p for p in verify(Folder(tmp_path / "run")).problems
    )
    changed = job(tmp_path, inputs, dedup={"similarity": 0.7})
    with pytest.raises(WorkError, match=r"filter/documents/00000-000\.parquet: its bytes changed"):
        changed.execute()


def test_a_lost_document_is_an_error_not_a_smaller_corpus(
    tmp_path: Path, inputs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(self: Any, folder: Folder, partition: str) -> Any:
        from corpusmill.pipeline.engine.stage import Outcome, decisions

        return lambda docs: Outcome(docs.slice(1), decisions([]))

    monkeypatch.setattr(fake_stages.Filter, "transform", forgetful)
    with pytest.raises(AssertionError, match="filter, partition 00000-000: 2 documents in, but 1 kept"):
        job(tmp_path, inputs).execute()
    assert not (tmp_path / "run/filter/manifest.json").exists()


def test_verify_names_what_is_wrong(tmp_path: Path, inputs: list[str]) -> None:
    with pytest.raises(UserError, match="no finished stage"):
        verify(Folder(tmp_path / "nothing"))
    job(tmp_path, inputs).execute()
    run = tmp_path / "run"
    (run / "split/all.txt").unlink()
    manifest = run / "redact/manifest.json"
    manifest.write_text(
        manifest.read_text().replace('"docs_in": 4', '"docs_in": 5').replace('"removed": 1', '"removed": 2')
    )
    problems = "\n".join(verify(Folder(run)).problems)
    assert "split/all.txt: missing" in problems
    assert "redact: counts of the partitions do not add up" in problems
    assert "redact: 5 documents in, but dedup kept 4" in problems


def rewritten(stage: Path, path: str, rows: int) -> None:
    """Cut a published Parquet file to its first `rows` rows, and update its checksum in the manifest."""
    table = publish_table(Folder(stage), path, read_table(Folder(stage / path)).slice(0, rows))
    manifest_file = stage / ("_manifest.json" if stage.name == "ledger" else f"parts/{Path(path).stem}.json")
    manifest = json.loads(manifest_file.read_text())
    files = [table.model_dump() if file["path"] == path else file for file in manifest["files"]]
    manifest_file.write_text(json.dumps({**manifest, "files": files}))


def reworded(file: Path, old: str, new: str) -> None:
    text = json.dumps(json.loads(file.read_text()))
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "split/all.txt").write_bytes(b""), "split/all.txt: 0 bytes, published with"),
        (
            lambda run: rewritten(run / "filter", "decisions/00000-000.parquet", 0),
            "filter/decisions/00000-000.parquet: 0 rows removed, counted 1",
        ),
        (
            lambda run: rewritten(run / "ingest", "decisions/00000-001.parquet", 0),
            "ingest/decisions/00000-001.parquet: 0 rows quarantined, counted 1",
        ),
        (
            lambda run: rewritten(run / "filter", "documents/00000-000.parquet", 0),
            "filter/documents/00000-000.parquet: 0 rows, 1 documents kept",
        ),
        (
            lambda run: reworded(run / "ingest/parts/00000-000.json", '"rows": 2', '"rows": 3'),
            "ingest/documents/00000-000.parquet: 2 rows, published with 3",
        ),
        (
            lambda run: (run / "dedup/parts/00001-000.json").unlink(),
            "dedup/parts/00001-000.json: missing",
        ),
        (
            lambda run: reworded(run / "dedup/parts/00001-000.json", '"kept": 2', '"kept": 1'),
            "dedup/parts/00001-000.json: not a PartitionManifest: counts: Value error, ",
        ),
        (
            lambda run: reworded(run / "filter/manifest.json", '"key": "', '"key": "0'),
            "dedup: made from another version of filter than the one there",
        ),
        (
            lambda run: rewritten(run / "ledger", "00000-000.parquet", 1),
            "ledger: 6 rows for 7 records",
        ),
    ],
)  # fmt: skip
def test_verify_holds_every_file_to_its_manifest_and_every_count_to_the_files(
    tmp_path: Path, inputs: list[str], damage: Callable[[Path], object], message: str
) -> None:
    """Where a checksum fits, the counts show the damage."""
    job(tmp_path, inputs).execute()
    run = tmp_path / "run"
    assert verify(Folder(run)).problems == []
    damage(run)
    problems = verify(Folder(run)).problems
    assert any(f"{run}/{message}" in problem or problem.startswith(message) for problem in problems), problems


def test_verify_adds_up_the_sources_of_every_partition(tmp_path: Path, inputs: list[str]) -> None:
    job(tmp_path, inputs).execute()
    part = tmp_path / "run/redact/parts/00001-000.json"
    manifest = json.loads(part.read_text())
    part.write_text(json.dumps({**manifest, "per_source": {}}))
    changed, sources = verify(Folder(tmp_path / "run")).problems
    assert changed == f"{part}: checksum differs from the published one"
    assert sources.endswith("redact: counts of the sources do not add up to the stage's")


def test_why_by_any_name(tmp_path: Path, inputs: list[str]) -> None:
    job(tmp_path, inputs).execute()
    run = Folder(tmp_path / "run")
    (row,) = why(run, "spam b")
    assert (row["outcome"], row["stage"], row["rule"]) == ("removed", "filter", "filter.spam")
    assert why(run, row["doc_id"]) == why(run, row["locator"]) == [row]
    assert "removed" in explain(row) and "filter.spam" in explain(row)
    assert "kept" in explain(why(run, "e")[0])
    with pytest.raises(UserError, match="no such document"):
        why(run, "nobody")
    with pytest.raises(UserError, match="no ledger there"):
        why(Folder(tmp_path / "nowhere"), "x")
