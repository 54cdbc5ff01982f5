"""Environments of foreign readers, in `.peers/` as those of the benches: made once, skipped where they cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from bench.peers import DATATROVE, NotMeasured, environment, installing

SCRIPTS = Path(__file__).parent / "scripts"
READERS = ("datasets==5.2.0", "webdataset==1.0.2", "wids==0.1.11", "webshart==0.4.6", "numpy==2.4.6")
# What Megatron's packages need but for torch, which is gigabytes with CUDA: the product's is borrowed.
MEGATRON = (
    "braceexpand==0.1.7", "click==8.1.8", "filetype==1.2.0", "mfusepy==3.1.1", "multi-storage-client==1.3.1",
    "numpy==2.4.6", "pillow==13.0.0", "pyyaml==6.0.3", "rapidyaml==0.15.2", "s3fs==2026.9.0", "tqdm==4.70.1", "webdataset==1.0.2",
)  # fmt: skip
WITHOUT_TORCH = ("megatron-energon==7.4.1", "megatron-core==0.16.1")


def readers() -> Path:
    """The Python with webdataset, Hugging Face datasets, wids and webshart."""
    return _made("shard-readers", READERS)


def datatrove() -> Path:
    """The Python with datatrove, the one of the benches."""
    return _made(DATATROVE.name, DATATROVE.requirements)


def megatron() -> Path:
    """The Python with Megatron-Energon and megatron-core."""
    python = _made("megatron", MEGATRON)
    done = python.parent / "without-torch"
    if not done.exists():
        command = [*installing(python), "--no-deps", *WITHOUT_TORCH]
        tried = subprocess.run(command, capture_output=True, text=True)
        if tried.returncode:
            pytest.skip(f"Megatron's packages cannot be had: {tried.stderr.strip().splitlines()[-1][:200]}")
        done.touch()
    return python


def _made(name: str, requirements: tuple[str, ...]) -> Path:
    try:
        return environment(name, requirements)
    except NotMeasured as error:
        pytest.skip(f"no environment for {name}: {error}")


def answer(python: Path, script: str, *arguments: str | Path) -> Any:
    """A script's answer for these arguments; the folder of the product's packages is the last one."""
    packages = sysconfig.get_paths()["purelib"]
    command = [str(python), str(SCRIPTS / f"{script}.py"), *map(str, arguments), packages]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **offline})
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
