"""What `make wheel` packs: machine code that the package finds, and nothing that Git would see."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

from corpusmill.common import kernel_code, kernel_keys
from tests.common.test_kernel_cache import USE
from tests.conftest import ROOT
from tools.wheel import PLACE, compile_kernels


def test_kernels_are_compiled_for_the_processors_of_the_wheel(tmp_path: Path) -> None:
    files = compile_kernels(tmp_path, ["-c", USE])
    assert files and all(kernel_code.from_bytes(file.read_bytes()) for file in files)
    assert {file.parents[1] for file in files} == {tmp_path / kernel_keys.shipped_folder().name}


def test_the_package_looks_for_them_where_the_build_packs_them() -> None:
    assert kernel_keys.shipped_folder().parent == PLACE
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert wheel["artifacts"] == [str(PLACE.relative_to(ROOT))]
    ignored = subprocess.run(["git", "check-ignore", "--quiet", f"{PLACE}/"], cwd=ROOT)
    assert ignored.returncode == 0
