"""The benches of the trainer where only torch and numpy are installed: what they import, and the configs they make."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from corpusmill.common.config import read_yaml
from corpusmill.schemas.training import TrainConfig
from tests.conftest import IMPORT_PATH, ROOT

# Everything that pyproject.toml asks for beside torch and numpy, and what comes with those.
REFUSED = (
    "pydantic", "pydantic_core", "xxhash", "orjson", "pyarrow", "obstore", "fsspec", "numba", "tokenizers", "transformers",
    "safetensors", "rich", "typer", "tensorboard", "ruamel", "zstandard", "dask", "torchao", "optuna", "pipeline",
)  # fmt: skip
REFUSE = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {REFUSED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
"""


def bare(code: str, *arguments: str) -> str:
    """What `code` prints in a fresh process that has torch and numpy."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORT_PATH}
    done = subprocess.run(
        [sys.executable, "-c", REFUSE + code, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


IMPORTS = """
import importlib, pkgutil
names = ["corpusmill.train.step", "corpusmill.train.log.metrics", "corpusmill.train.parallel.mesh", "corpusmill.train.tools.estimate.memory"]
for package in ("corpusmill.train.model", "corpusmill.train.optim", "corpusmill.train.parallel"):
    try:
        found = importlib.import_module(package)
    except ModuleNotFoundError as error:
        assert error.name == package, error
        continue
    names += [part.name for part in pkgutil.walk_packages(found.__path__, package + ".")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
STEPS = """
import json, torch
from bench import _bare
note = _bare.stand_in()
assert note and "not installed" in note
from bench._train_ours import memory_batch, make_state
from corpusmill.train.step import train_step
torch.manual_seed(0)
state = make_state({"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2}, 96, rows=4, micro=2, length=16)
losses = []
for number in range(3):
    metrics = train_step(state, memory_batch(4, 16, 96, number=0), 64.0)
    losses.append(float(state.window.sum(0)[0]) / 64)
    state.window.zero_()
assert float(metrics.grad_norm) > 0
print(json.dumps(losses))
"""
CONFIGS = """
import json, sys
from bench import _bare
_bare.stand_in()
from corpusmill.schemas.training import TrainConfig
print(json.dumps([TrainConfig.model_validate(given).model_dump() for given in json.loads(sys.argv[1])]))
"""


def test_the_trainers_core_imports_torch_and_numpy_alone() -> None:
    assert int(bare(IMPORTS)) >= 20


def test_a_step_learns_with_torch_and_numpy_alone() -> None:
    losses = json.loads(bare(STEPS))
    assert losses[2] < losses[1] < losses[0]


CHECKS = """
import sys
sys.modules["pytest"] = None
from bench import _bare
_bare.stand_in()
from bench._gpu_checks import NAMES, run
from tests.gpu.checks import CHECKS
assert tuple(CHECKS) == NAMES
print(*(run(name, stand_in=True)["outcome"] for name in ("experts", "FlexAttention", "offloaded optimizer")))
"""


def test_the_checks_of_a_device_run_with_torch_and_numpy_alone() -> None:
    assert bare(CHECKS).split() == ["passed"] * 3


def test_the_stand_in_makes_the_configs_that_pydantic_makes() -> None:
    files = sorted((ROOT / "configs/train").glob("*.yaml"))
    given: list[dict[str, Any]] = [read_yaml(file) for file in files]
    given.append(
        {
            "name": "a",
            "data": {"shards": "x"},
            "optimizer": {"kind": "lion"},
            "schedule": {"tokens": 9 * 64 * 256 * 100},
        }
    )
    made = json.loads(bare(CONFIGS, json.dumps(given)))
    for mine, yours in zip(made, given, strict=True):
        assert mine == json.loads(json.dumps(TrainConfig.model_validate(yours).model_dump()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dim": 30}, "set dim to 32"),
        ({"heads": 4, "kv_head": 2}, "kv_head"),
        ({"moe": {}}, "experts is missing"),
    ],
)
def test_the_stand_in_refuses_what_validators_refuse(given: dict[str, Any], message: str) -> None:
    code = "import sys, json\nfrom bench import _bare\n_bare.stand_in()\nfrom corpusmill.schemas.model import ModelConfig\n"
    code += "try:\n    ModelConfig.model_validate(json.loads(sys.argv[1]))\nexcept ValueError as error:\n    print(error)\n"
    assert message in bare(code, json.dumps(given))


def test_a_checkout_needs_no_installation() -> None:
    """As on a rented machine: nothing but a clone, with what it runs in child processes too."""
    code = """
import sys, subprocess
own = {p for p in sys.path if p.rstrip("/").endswith("src")}
sys.path[:] = [p for p in sys.path if p not in own]
from bench import _bare
_bare.stand_in()
import corpusmill
code = "import sys, os; assert os.environ['PYTHONPATH'].split(os.pathsep)[0] in sys.path; import corpusmill; print(corpusmill.__file__)"
print(corpusmill.__file__, subprocess.check_output([sys.executable, "-c", code], text=True).strip(), sep="\\n")
"""
    assert set(bare(code).splitlines()) == {str(ROOT / "src/corpusmill/__init__.py")}
