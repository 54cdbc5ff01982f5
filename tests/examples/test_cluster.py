"""The files for clusters: settings and options exist, names agree, scripts parse, and workers come back to a new scheduler.

`tests/operations/test_slurm.py` runs those for Slurm.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.recipe import Cluster, Recipe
from tests.conftest import IMPORT_PATH, ROOT
from tests.docs.test_docs import wrong_command
from tests.operations.cluster import dask_cluster

EXAMPLES = ROOT / "examples/cluster"


def wrong_dask(words: list[str]) -> str | None:
    """What `dask scheduler` or `dask worker` has against a call."""
    import click
    from distributed.cli import dask_scheduler, dask_worker

    command: Any = {"scheduler": dask_scheduler, "worker": dask_worker}[words[1]].main
    try:
        command.make_context("dask", words[2:])
    except click.exceptions.ClickException as error:
        return str(error.format_message())
    return None


@pytest.fixture(scope="module")
def kubernetes() -> dict[str, Any]:
    """Kind -> object."""
    return {one["kind"]: one for one in YAML(typ="safe").load_all(EXAMPLES / "kubernetes.yaml")}


def containers(kubernetes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = kubernetes["DaskCluster"]["spec"]
    pods = [spec["worker"]["spec"], spec["scheduler"]["spec"], kubernetes["Job"]["spec"]["template"]["spec"]]
    return {container["name"]: container for pod in pods for container in pod["containers"]}


def test_the_settings_are_settings_of_dask() -> None:
    import dask
    import distributed  # noqa: F401 (its defaults)

    def names(values: dict[str, Any], at: str = "") -> list[str]:
        return [
            name
            for key, value in values.items()
            for name in (
                names(value, f"{at}{key}.")
                if isinstance(value, dict) and key != "logging"
                else [f"{at}{key}"]
            )
        ]

    given = names(YAML(typ="safe").load(EXAMPLES / "dask.yaml"))
    missing = object()
    unknown = [name for name in given if dask.config.get(name, missing) is missing]
    assert len(given) == 6 and unknown == ["distributed.logging"]  # in Dask's defaults it is a comment


def test_the_commands_of_kubernetes_parse(kubernetes: dict[str, Any]) -> None:
    found = containers(kubernetes)
    assert list(found) == ["worker", "scheduler", "driver"]
    for name in ("worker", "scheduler"):
        assert found[name]["args"][0] == "dask" and wrong_dask(found[name]["args"]) is None
    assert found["driver"]["args"][0] == "corpusmill" and wrong_command(found["driver"]["args"][1:]) is None


def test_the_names_of_kubernetes_agree(kubernetes: dict[str, Any], tmp_path: Path) -> None:
    from corpusmill.common.config import load

    cluster, job, recipe = kubernetes["DaskCluster"], kubernetes["Job"], kubernetes["ConfigMap"]
    found, name = containers(kubernetes), cluster["metadata"]["name"]
    assert len({container["image"] for container in found.values()}) == 1
    assert {one["envFrom"][0]["secretRef"]["name"] for one in (found["worker"], found["driver"])} == {
        "corpusmill-keys"
    }
    assert cluster["spec"]["scheduler"]["service"]["selector"]["dask.org/cluster-name"] == name
    assert found["driver"]["args"][-1] == f"tcp://{name}-scheduler:8786"  # the name that the operator gives
    (volume,) = job["spec"]["template"]["spec"]["volumes"]
    assert volume["configMap"]["name"] == recipe["metadata"]["name"]
    assert found["driver"]["volumeMounts"][0]["name"] == volume["name"]
    (file,) = recipe["data"]
    (tmp_path / file).write_text(recipe["data"][file])
    assert found["driver"]["args"][2] == f"{found['driver']['volumeMounts'][0]['mountPath']}/{file}"
    assert load(Recipe, str(tmp_path / file), []).cluster.patience == 3600


def test_the_training_job_of_kubernetes() -> None:
    """torchrun takes its arguments, the trainer takes the config, and the names agree."""
    from torch.distributed.run import get_args_parser

    from corpusmill.common.config import validate
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.parallel.elastic import fitted

    objects = {one["kind"]: one for one in YAML(typ="safe").load_all(EXAMPLES / "train.yaml")}
    job, service, config = objects["Job"], objects["Service"], objects["ConfigMap"]
    (pod, name) = job["spec"]["template"]["spec"], job["metadata"]["name"]
    (container,) = pod["containers"]
    assert container["args"][0] == "torchrun"
    given = get_args_parser().parse_args(container["args"][1:])
    least, most = map(int, given.nnodes.split(":"))
    assert most == job["spec"]["completions"] == job["spec"]["parallelism"] and given.module
    assert given.training_script == "corpusmill.train" and job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["successPolicy"]["rules"] == [{"succeededIndexes": "0"}]
    assert pod["restartPolicy"] == "Never"  # as podFailurePolicy demands
    # The first pod of an indexed job, by the service without an address of its own.
    host, _, port = given.rdzv_endpoint.partition(":")
    assert host == f"{name}-0.{pod['subdomain']}" and pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {"job-name": name}
    assert int(port) == service["spec"]["ports"][0]["port"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    assert int(given.nproc_per_node) == gpus == container["resources"]["requests"]["nvidia.com/gpu"]
    (file,) = config["data"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert given.training_script_args == [f"{mounts['config']}/{file}"] and mounts.keys() == volumes.keys()
    assert volumes["config"]["configMap"]["name"] == config["metadata"]["name"]
    trained = validate(TrainConfig, YAML(typ="safe").load(config["data"][file]), file)
    for nodes in range(least, most + 1):  # all processes take part, whatever is lost
        assert fitted(trained, nodes * gpus).active == nodes * gpus


def test_the_scripts_parse() -> None:
    for script in ("worker.sh", "slurm.sbatch", "train.sbatch"):
        assert os.access(EXAMPLES / script, os.X_OK)
        subprocess.run(["bash", "-n", EXAMPLES / script], check=True)
    batch = (EXAMPLES / "slurm.sbatch").read_text().replace("\\\n", " ").splitlines()
    (call,) = [line for line in batch if line.startswith("corpusmill ")]
    assert wrong_command(shlex.split(call)[1:]) is None
    done = subprocess.run(
        [sys.executable, EXAMPLES / "slurm_cluster.py", "--help"], capture_output=True, text=True
    )
    assert "corpusmill run recipe.yaml --scheduler scheduler.json" in done.stdout and done.returncode == 0


def test_workers_come_back_to_a_new_scheduler(tmp_path: Path) -> None:
    with dask_cluster(tmp_path) as cluster:
        script = subprocess.Popen(
            [EXAMPLES / "worker.sh", "--scheduler-file", tmp_path / "scheduler.json", "--nworkers", "1", "--host", "127.0.0.1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONPATH": IMPORT_PATH, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )  # fmt: skip
        try:
            with Workers(Cluster(), cluster.address, Progress(quiet=True)) as workers:
                first = workers.map(worker, [1], "first")
                assert first[0]["DASK_CONFIG"] == str(EXAMPLES / "dask.yaml")
                assert first[0]["profile"] is False and first[0]["OMP_NUM_THREADS"] == "1"
                cluster.restart_scheduler()
                assert workers.map(worker, [2], "second")[0]["pid"] != first[0]["pid"]
        finally:
            script.terminate()
            assert script.wait(60) == 0


def worker(_: int) -> dict[str, Any]:
    import dask

    found: dict[str, Any] = {name: os.environ.get(name) for name in ("DASK_CONFIG", "OMP_NUM_THREADS")}
    return {**found, "profile": dask.config.get("distributed.worker.profile.enabled"), "pid": os.getpid()}
