"""Runs made with relative paths, traced from any directory, and moved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from corpusmill.__main__ import build
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import INPUTS, parse_inputs
from corpusmill.pipeline.inspect.lineage.run import RunPlaces
from corpusmill.schemas.manifest import RunInputs
from tests.command_line import CliRunner
from tests.e2e.cli import difference, published

RECIPE = """\
name: relative
output: out/run
sources: {notes: {paths: [in/notes, "in/*.jsonl"]}}
stages: [ingest, redact, split, tokenizer, shard]
split: {validation_share: 0, min_documents: 0}
tokenizer: {vocab_size: 300}
shard: {block_tokens: 128}
"""


def command(*arguments: str | Path) -> str:
    result = CliRunner().invoke(build(), [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a corpus, a recipe with relative paths, and the run that was made there."""
    (folder / "in/notes").mkdir(parents=True)
    for i in range(4):
        (folder / f"in/notes/{i}.txt").write_text(
            f"Note number {i}, which is a short one to be found again.\n"
        )
    lines = [json.dumps({"text": f"Line {i}: of the other kind of note, also short."}) for i in range(4)]
    (folder / "in/more.jsonl").write_text("\n".join(lines))
    (folder / "r.yaml").write_text(RECIPE)
    monkeypatch.chdir(folder)
    command("run", "r.yaml", "--workers", "0", "-q")
    return folder


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project(tmp_path / "project", monkeypatch)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def raws(run: str | Path) -> list[dict[str, Any]]:
    """What is reported on the source of one token of each document."""
    blocks = json.loads(command("trace", "notes-train-000000:0:0-100", "--run", run, "--json"))
    return [answer["raw"] for answer in blocks]


def test_traced_from_anywhere(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a relative name of the run, and a link to it."""
    (made.parent / "link").symlink_to(made / "out/run")
    for here, run in (("elsewhere", made / "out/run"), ("project/out", "run"), ("elsewhere", "../link")):
        monkeypatch.chdir(made.parent / here)
        found = raws(run)
        assert {raw["state"] for raw in found} == {"equal"} and all(raw["spans"] for raw in found)
        assert all(Path(raw["file"]).is_relative_to(made / "in") for raw in found)


def test_where_it_was_made_comes_before_here(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another corpus of the same names lies in the present directory."""
    here = made.parent / "elsewhere"
    shutil.copytree(made / "in", here / "in")
    for file in (here / "in/notes").iterdir():
        file.write_text("Something else.\n")
    assert {raw["state"] for raw in raws(made / "out/run")} == {"equal"}


def test_run_and_corpus_move_together_or_not(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = made.rename(made.parent / "moved")
    assert {raw["state"] for raw in raws(moved / "out/run")} == {"equal"}
    alone = shutil.copytree(moved / "out/run", made.parent / "deep/down/alone")
    monkeypatch.chdir(moved)  # from where it was made
    assert {raw["state"] for raw in raws(alone)} == {"equal"}
    here = made.parent / "elsewhere"
    monkeypatch.chdir(here)
    for raw in raws(alone):
        assert raw["state"] == "unfound" and f"{here}/in/notes" in raw["note"]
        assert "the recipe's paths are relative: run trace from where the run was made" in raw["note"]
    words = command("trace", "notes-train-000000:0:0", "--run", alone)
    assert "not found from here" in words and "not there any more" not in words


def test_a_file_that_is_gone_is_reported(made: Path) -> None:
    """The folder that it was in is there: nothing is left to guess."""
    for file in (made / "in/notes").iterdir():
        file.unlink()
    states = {raw["format"] or "text": raw["state"] for raw in raws(made / "out/run")}
    assert states == {"text": "gone", "jsonl": "equal"}


def test_a_run_of_before_is_known_by_its_files_alone(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory is learned when its recipe is run again."""
    file = made / "out/run" / INPUTS
    known = parse_inputs(file.read_bytes())
    assert len(known.files) == 5 and known.made_in == "../.."
    file.write_text(json.dumps(known.files))
    assert parse_inputs(file.read_bytes()) == RunInputs(files=known.files, made_in="")
    assert {raw["state"] for raw in raws(made / "out/run")} == {"unfound"}
    monkeypatch.chdir(made)
    assert {raw["state"] for raw in raws("out/run")} == {"equal"}
    command("run", "r.yaml", "--workers", "0", "-q")
    assert parse_inputs(file.read_bytes()) == known
    for data in (b"", b"[]", b'{"files": 3}', b'{"files": {"a": [1]}}'):
        assert parse_inputs(data) == RunInputs(files={})


def test_shards_of_documents_by_a_relative_path(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread goes on in the run before, from anywhere."""
    monkeypatch.chdir(made)
    options = ["--tokenizer", "out/run/shards/tokenizer.json", "--workers", "0", "-q"]
    command("shard", "out/run/redact/documents", "out/again", *options)
    monkeypatch.chdir(made.parent)
    address = f"{next((made / 'out/again').rglob('*.tar'))}:0:0"
    (answer,) = json.loads(command("trace", address, "--json"))
    assert (
        answer["lineage_ends"] is None and answer["raw"]["state"] == "equal" and len(answer["decisions"]) == 2
    )


def test_absolute_paths_need_no_directory(made: Path) -> None:
    assert RunPlaces(str(made / "out/run"), print).places_of("/a/b") == ["/a/b"]
    command("ingest", made / "in", made / "out/ingested", "--workers", "0", "-q")
    assert parse_inputs((made / "out/ingested" / INPUTS).read_bytes()).made_in == ""
    assert RunPlaces(str(made / "out/ingested"), print).made_in == ""


def test_nothing_else_knows_where_a_run_was_made(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = project(tmp_path / "deep/down/other", monkeypatch)
    assert difference(published(made / "out/run"), published(other / "out/run")) == []
    for file in (made / "out/run").rglob("*"):
        assert not file.is_file() or str(tmp_path).encode() not in file.read_bytes(), file
    assert Folder(made / "out/run" / INPUTS).exists()
