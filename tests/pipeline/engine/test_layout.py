"""What `verify` reports on missing stages, shards without a manifest, and unfinished runs."""

# ruff: noqa: F811 (fixtures come by import, and arguments have their names)
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import corpusmill.pipeline.shard.plan
from corpusmill.__main__ import build
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import read_record
from corpusmill.pipeline.inspect.lineage.run import RunPlaces
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.schemas.manifest import RunRecord, manifest_name
from tests.command_line import CliRunner
from tests.faults.shards import changed, run, run_recipe, small, tars  # noqa: F401 (fixtures)

STAGES = {
    "ingest": "ingest", "dedup": "dedup", "ledger": "ledger", "split": "split", "tokenizer": "tokenizer",
    "shard": "shards",
}  # fmt: skip


@pytest.fixture
def alone(small: Path, tmp_path: Path) -> Path:
    """What `corpusmill shard` left."""
    out = tmp_path / "alone"
    tokenizer = ["--tokenizer", str(small / "run/shards/tokenizer.json")]
    arguments = ["shard", str(small / "web.jsonl"), str(out), *tokenizer, "--workers", "0", "-q"]
    assert CliRunner().invoke(build(), arguments, catch_exceptions=False).exit_code == 0
    return out


def only(problems: list[str], folder: Path, stage: str, record: Path) -> None:
    (problem,) = problems
    assert problem.startswith(f"{folder}: no finished {stage} there, but {record} lists it; "), problem


@pytest.mark.parametrize(("stage", "place"), STAGES.items())
@pytest.mark.parametrize("what", ["folder", "manifest", "empty manifest"])
def test_a_stage_that_is_not_there_is_named(run: Path, stage: str, place: str, what: str) -> None:
    manifest = run / place / manifest_name(stage)
    if what == "folder":
        shutil.rmtree(run / place)
    elif what == "manifest":
        manifest.unlink()
    else:
        manifest.write_bytes(b"")
    found = verify(Folder(run), sample=0)
    problems = [problem for problem in found.problems if not problem.startswith("ledger: ")]
    only(problems, run / place, stage, run / "manifest.json")
    assert not found.unfinished


@pytest.mark.parametrize(("stage", "place"), [("shard", ""), ("split", "before/split"), ("ledger", "ledger")])
def test_of_a_command_too(alone: Path, stage: str, place: str) -> None:
    assert verify(Folder(alone)).problems == []
    (alone / place / manifest_name(stage)).unlink()
    only(verify(Folder(alone)).problems, alone / place, stage, alone / "run.json")


def test_of_a_command_whose_report_was_asked_for_later(alone: Path) -> None:
    """The report is one more stage of the record, and not the one that the command is named by: its shards are found."""
    result = CliRunner().invoke(build(), ["report", str(alone), "-q"], catch_exceptions=False)
    assert result.exit_code == 0
    assert verify(Folder(alone)).problems == []
    places = RunPlaces(str(alone), print)
    assert places.folder_of("shard") == Folder(alone) == places.shards.folder and places.shards.index.sets
    assert places.folder_of("report") == Folder(alone / "report")
    shutil.rmtree(alone / "report")
    only(verify(Folder(alone)).problems, alone / "report", "report", alone / "run.json")


def test_shards_without_a_manifest_are_still_read(run: Path) -> None:
    (run / "shards/manifest.json").unlink()
    tar = tars(run)[0]
    changed(tar, lambda data: data.__setitem__(700, data[700] ^ 1))
    missing, flipped = verify(Folder(run)).problems
    assert missing.startswith(f"{run}/shards: no finished shard there")
    assert flipped.startswith(f"{tar}: ") and "payload differs" in flipped
    (problem, other) = verify(Folder(run / "shards")).problems
    assert problem.startswith(f"{run}/shards: shards without their manifest.json") and other == flipped


def test_a_run_that_was_killed_is_not_finished(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside `shard`, before its lists: the tars have no manifest, and the run no record."""

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(corpusmill.pipeline.shard.plan, "publish_indexes", kill)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(small, tmp_path / "run")
    found = verify(Folder(tmp_path / "run"))
    (problem,), (note,) = found.problems, found.notes
    assert problem.startswith(f"{tmp_path}/run/shards: shards without their manifest.json")
    assert found.unfinished and "not finished" in note and "run the command that made it again" in note
    shutil.rmtree(tmp_path / "run/shards")
    found = verify(Folder(tmp_path / "run"))
    assert found.unfinished and found.problems == [] and found.notes == [note]
    run_recipe(small, tmp_path / "run")
    found = verify(Folder(tmp_path / "run"))
    assert not found.unfinished and found.problems == found.notes == []


def test_the_last_line_says_so(run: Path) -> None:
    result = CliRunner().invoke(build(), ["verify", str(run)])
    assert result.output.endswith("MB/s: 0 problems\n")
    (run / "manifest.json").unlink()
    result = CliRunner().invoke(build(), ["verify", str(run)])
    assert result.output.endswith("MB/s: 0 problems in a run that is not finished\n")
    assert '"unfinished": true' in CliRunner().invoke(build(), ["verify", str(run), "--json"]).output


def test_a_later_run_that_was_killed(small: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other parameters: what it had done is not of the record, what it had not is not there."""

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(corpusmill.pipeline.shard.plan, "publish_indexes", kill)
    with pytest.raises(KeyboardInterrupt):
        run_recipe(small, run, "split.validation_share=0.2")
    found = verify(Folder(run))
    only(found.problems, run / "shards", "shard", run / "manifest.json")
    assert found.unfinished and "manifest.json: of another run than split, tokenizer" in found.notes[0]


def test_the_folder_of_one_stage_is_whole_in_itself(run: Path) -> None:
    for place in ("dedup", "shards"):
        found = verify(Folder(run / place))
        assert found.problems == [] and not found.unfinished


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"kind": "corpusmill-run-v1"}'])
def test_a_record_that_cannot_be_read(run: Path, data: bytes) -> None:
    (run / "manifest.json").write_bytes(data)
    with pytest.raises(WorkError, match=r"manifest\.json: not the record of a run"):
        read_record(Folder(run))
    found = verify(Folder(run))
    assert len(found.problems) == 1 and "not the record of a run" in found.problems[0]


def test_a_source_may_be_named_as_a_key_of_a_stages_manifest(tmp_path: Path) -> None:
    record = RunRecord(corpusmill="1", recipe={"sources": {"partitions": {}}}, stages={}, checksums={})
    (tmp_path / "manifest.json").write_bytes(record.to_json())
    found = read_record(Folder(str(tmp_path)))
    assert found is not None and found.run.recipe == record.recipe
