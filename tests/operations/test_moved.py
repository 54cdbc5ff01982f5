"""A project made with relative paths works from any directory, and after the whole of it was moved: corpus, run and training."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.cli import corpusmill, write_recipe
from tests.e2e.test_train import write_config


@pytest.fixture(scope="module")
def moved(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was made in one place and now lies in another, beside nothing of the first."""
    folder = tmp_path_factory.mktemp("project")
    made = folder / "made"
    shutil.copytree(corpus, made / "in")
    recipe = write_recipe(made / "small.yaml", Path("in"), "runs/small")
    corpusmill("run", recipe.name, "--workers", "0", cwd=made)
    config = write_config(made, "runs/small/shards", "runs/small/train")
    corpusmill("train", config.name, "--set", "schedule.steps=10", cwd=made)
    (folder / "elsewhere/deep").mkdir(parents=True)
    return made.rename(folder / "elsewhere/deep/now")


@pytest.fixture(params=["beside it", "far from it"])
def place(request: pytest.FixtureRequest, moved: Path) -> tuple[Path, str]:
    """A working directory, and the run as it is named there."""
    here = moved.parent if request.param == "beside it" else Path("/")
    return here, os.path.relpath(moved / "runs/small", here)


def test_generate_and_evaluate(place: tuple[Path, str]) -> None:
    here, run = place
    assert corpusmill("generate", f"{run}/train", "--prompt", "The whale", cwd=here).stdout.startswith(
        "The whale"
    )
    result = json.loads(corpusmill("evaluate", f"{run}/train", "--json", cwd=here).stdout)
    assert set(result["sources"]) and result["step"] == 10


def test_generation_and_export_need_no_shards(moved: Path, tmp_path: Path) -> None:
    """What they need of the vocabulary is in the training run."""
    shutil.copytree(moved / "runs/small/train", tmp_path / "alone")
    assert corpusmill("generate", tmp_path / "alone", "--prompt", "A", cwd=tmp_path).stdout.startswith("A")
    summary = json.loads(corpusmill("export", "alone", "model", "--json", cwd=tmp_path).stdout)
    assert summary["step"] == 10 and (tmp_path / "model/config.json").exists()
    failed = corpusmill("evaluate", "alone", cwd=tmp_path, check=False)
    assert failed.returncode == 2 and "data.shards: " in failed.stderr and "no such file" in failed.stderr


def test_trace_find_why_and_verify(place: tuple[Path, str]) -> None:
    here, run = place
    shard = next((here / run / "shards/books/train").glob("*.tar")).stem
    traced = json.loads(corpusmill("trace", f"{shard}:0:0-20", "--run", run, "--json", cwd=here).stdout)
    assert "record" in json.dumps(traced) and "in/books" in json.dumps(traced)
    document = json.dumps(traced).partition('"doc_id": "')[2].partition('"')[0]
    assert document in corpusmill("why", document, "--run", run, "--json", cwd=here).stdout
    assert json.loads(corpusmill("find", document, "--run", run, "--json", cwd=here).stdout)
    verified = json.loads(corpusmill("verify", run, "--json", cwd=here).stdout)
    assert verified["problems"] == [] and not verified["unfinished"]


def test_the_batch_of_a_moved_training_run(place: tuple[Path, str]) -> None:
    here, run = place
    rows = json.loads(corpusmill("batch", f"{run}/train", "--step", "3", "--json", cwd=here).stdout)
    assert "doc_id" in json.dumps(rows)
