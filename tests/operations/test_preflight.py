"""What stops a run is an error in its first seconds, and by `--dry-run`: workers and their environment, disks, evaluation files,
models, and rules that judge languages that they are not made for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from corpusmill.__main__ import main
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine import cluster as cluster_module
from corpusmill.pipeline.engine.preflight import Environment, compare, environment
from corpusmill.schemas.recipe import Recipe
from tests.e2e.cli import corpusmill, started
from tests.forks import launch
from tests.operations.cluster import DaskCluster, dask_cluster

KEY = {"CORPUSMILL_REDACT_KEY": "0123456789abcdef0123456789abcdef"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    file = tmp_path / "docs.jsonl"
    text = "Please write to jane.doe@example.org about the history of the harbour. " * 10
    file.write_text("".join(f'{{"id": "{n}", "text": "{n} {text}"}}\n' for n in range(20)))
    return file


def impatient(*arguments: str) -> None:
    """`corpusmill ARGUMENTS`, with a second for a scheduler to answer and to have a worker."""
    cluster_module.ANSWER = 1.0
    sys.argv = ["corpusmill", *arguments]
    main()


def test_no_scheduler_and_no_worker(cluster: DaskCluster, documents: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"name: r\noutput: {tmp_path}/out\nsources: {{web: {{paths: [{documents}]}}}}\n")
    run = partial(launch, 1, f"{__name__}:impatient", "run", recipe, preload="commands")
    gone = run("--scheduler", "tcp://127.0.0.1:9")
    assert gone.returncode == 2 and "no Dask scheduler answers there" in gone.stderr
    alone = run("--scheduler", cluster.address, "--dry-run")
    assert alone.returncode == 2 and "it has no worker; start some with `dask worker tcp://" in alone.stderr
    assert not (tmp_path / "out").exists()


def test_a_key_that_workers_lack(cluster: DaskCluster, documents: Path, tmp_path: Path) -> None:
    """It is set here, and not there: the message says where it is missing, and nothing was begun."""
    worker = cluster.add_worker(tmp_path / "elsewhere")
    cluster.wait_for_worker(tmp_path / "elsewhere")
    arguments = (
        "redact",
        documents,
        tmp_path / "out",
        "--set",
        "redact.replacement=pseudonym",
        "--scheduler",
        cluster.address,
    )
    try:
        failed = started(*arguments, env=KEY, check=False)
        assert failed.returncode == 2 and len(failed.stderr.splitlines()) == 1, failed.stderr
        assert (
            "error: worker tcp://127.0.0.1" in failed.stderr and f"(in {tmp_path}/elsewhere)" in failed.stderr
        )
        assert "CORPUSMILL_REDACT_KEY" in failed.stderr and not (tmp_path / "out").exists()
    finally:
        worker.kill()
        worker.wait()
    cluster.add_worker(tmp_path / "with_key", KEY)
    done = started(*arguments, env=KEY)
    assert "redact" in done.stdout


def test_a_worker_without_the_package(cluster: DaskCluster, documents: Path, tmp_path: Path) -> None:
    """It is named, and what is to be installed there."""
    other = tmp_path / "other/corpusmill/__init__.py"
    other.parent.mkdir(parents=True)
    other.write_text("'''Another package of this name.'''")
    worker = cluster.add_worker(tmp_path / "bare", {"PYTHONPATH": str(tmp_path / "other")})
    cluster.wait_for_worker(tmp_path / "bare")
    try:
        failed = started("ingest", documents, tmp_path / "out", "--scheduler", cluster.address, check=False)
        assert failed.returncode == 2 and len(failed.stderr.splitlines()) == 1, failed.stderr
        assert "it has not the same version of corpusmill as this command (" in failed.stderr
        assert "No module named" in failed.stderr
        assert failed.stderr.rstrip().endswith("install it there") and not (tmp_path / "out").exists()
    finally:
        worker.kill()
        worker.wait()


def test_a_scheduler_without_the_package(documents: Path, tmp_path: Path) -> None:
    other = tmp_path / "other/corpusmill/__init__.py"
    other.parent.mkdir(parents=True)
    other.write_text("")
    (tmp_path / "dask").mkdir()
    with dask_cluster(tmp_path / "dask", {"PYTHONPATH": str(tmp_path / "other")}) as cluster:
        cluster.add_worker(tmp_path / "worker")
        failed = started("ingest", documents, tmp_path / "out", "--scheduler", cluster.address, check=False)
    assert failed.returncode == 2 and len(failed.stderr.splitlines()) == 1, failed.stderr
    assert f"--scheduler {cluster.address}: it has not the same version of corpusmill" in failed.stderr
    assert failed.stderr.rstrip().endswith("install it there") and not (tmp_path / "out").exists()


def test_what_a_worker_does_not_see(documents: Path, tmp_path: Path) -> None:
    recipe = Recipe.model_validate(
        {"name": "r", "sources": {"web": {"paths": [str(documents)]}}}
    ).model_dump_json()
    fine = environment(recipe, ["ingest", "filter"], [("sources.web.paths", Folder(documents))], None)
    assert fine.problem == "" and compare({"tcp://a": fine}) == []
    missing = environment(recipe, ["ingest"], [("sources.web.paths", Folder("/no/such/file"))], None)
    assert "sources.web.paths: /no/such/file is not there; workers need the same paths" in missing.problem
    other = environment(recipe, ["ingest"], [], Folder(tmp_path) / "owner.json")
    assert f"the output {tmp_path} is another folder there" in other.problem
    with pytest.raises(UserError, match=r"worker tcp://0 on .*\n.*\n.*\nand 4 more of 7 workers"):
        compare({f"tcp://{n}": missing for n in range(7)})
    old = Environment("h", "/", {**fine.versions, "pyarrow": "1.0"}, "")
    assert "1 of 2 workers have pyarrow 1.0, the driver has" in compare({"a": old, "b": fine})[0]


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_evaluation_files_are_parsed_first(documents: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals/good.jsonl").write_text(
        '{"question": "what is the capital of the country", "answer": "it"}\n'
    )
    (tmp_path / "evals/LICENSES.tsv").write_text("file\tlicence\ngood.jsonl\tMIT\n")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"name: r\noutput: {tmp_path}/out\nsources: {{web: {{paths: [{documents}]}}}}\n"
        f"decontaminate: {{against: [{tmp_path}/evals]}}\n"
    )
    failed = corpusmill("run", recipe, "--workers", "0", *options, check=False)
    assert (
        failed.returncode == 2
        and "LICENSES.tsv: none of its fields (file, licence) is known" in failed.stderr
    )
    assert not (tmp_path / "out").exists()


def test_rules_for_other_languages_are_named(documents: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    lines = f"name: r\noutput: {tmp_path}/out\nsources: {{web: {{paths: [{documents}]}}}}\n"
    recipe.write_text(lines + "filter: {rules: [gopher_quality], language: null}\n")
    warned = corpusmill("run", recipe, "--workers", "0", "--dry-run").stderr
    assert (
        "warning: filter: the rules of gopher_quality are made for en, and will judge text of every language"
        in warned
    )
    recipe.write_text(lines + "filter: {rules: [gopher_quality], language: {keep: [en]}}\n")
    assert "warning" not in corpusmill("run", recipe, "--workers", "0", "--dry-run").stderr
