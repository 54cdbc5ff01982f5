"""Kernels are compiled once, and again when anything below them has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpusmill.common import kernel_cache
from tests.conftest import IMPORT_PATH

USE = """
import sys
from corpusmill.pipeline.engine.unionfind import components
import numpy as np
ends = np.array([0, 1]), np.array([1, 2])
assert components(4, *ends).tolist() == [0, 0, 0, 3]
from corpusmill.pipeline.engine import unionfind
kernels = [k for k in vars(unionfind).values() if hasattr(k, "stats")]
print(sum(sum(k.stats.cache_hits.values()) for k in kernels), sum(sum(k.stats.cache_misses.values()) for k in kernels))
"""


def hits_and_misses(folder: Path) -> tuple[int, int]:
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH, "CORPUSMILL_KERNEL_CACHE": str(folder)}
    done = subprocess.run([sys.executable, "-c", USE], env=env, capture_output=True, text=True, check=True)
    hits, misses = map(int, done.stdout.split())
    return hits, misses


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    hits, misses = hits_and_misses(tmp_path)
    assert hits == 0 and misses > 0
    hits, misses = hits_and_misses(tmp_path)
    assert hits > 0 and misses == 0


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(hits_and_misses, [tmp_path] * 3))
    assert sum(misses for _, misses in found) == hits_and_misses(tmp_path / "alone")[1]


CONSTANTS = """
from corpusmill.common.kernel_cache import compiled

@compiled
def power(base, exponent):
    result = 1
    for _ in range(exponent):
        result *= base
    return result

@compiled
def sums(n):
    return power(n, 2) + power(n, 3) + power(2, n) + power(-1, 5)

assert sums(4) == 16 + 64 + 16 - 1
assert set(power.nopython_signatures) <= {int64(int64, int64)}  # none where `sums` is loaded
print(len(power.nopython_signatures))
"""


def test_a_kernel_is_compiled_once_for_all_integers_that_another_passes(tmp_path: Path) -> None:
    script = tmp_path / "constants.py"
    script.write_text("from numba import int64\n" + CONSTANTS)
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH, "CORPUSMILL_KERNEL_CACHE": str(tmp_path / "cache")}
    for expected in ("1", "0"):
        done = subprocess.run(
            [sys.executable, str(script)], env=env, check=True, capture_output=True, text=True
        )
        assert done.stdout.strip() == expected


RECURSIVE = """
from corpusmill.common.kernel_cache import compiled

@compiled
def steps(n):
    return 0.0 if n < 1 else steps(n - 1.5) + 1.0

assert steps(5) == 3.0
"""


def test_a_kernel_that_calls_itself_does_not_wait_for_itself(tmp_path: Path) -> None:
    """With another type, so that it is compiled while it is compiled."""
    (tmp_path / "recursive.py").write_text(RECURSIVE)
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH, "CORPUSMILL_KERNEL_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, tmp_path / "recursive.py"], env=env, check=True, timeout=300)


def test_without_a_folder_each_process_compiles_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        assert hits_and_misses(tmp_path / "file")[0] == 0


def test_the_key_is_what_a_kernel_is_made_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = {
        "a": "from corpusmill.b import (\n    one,\n    two,\n)\n", "b/__init__": "", "b/one": "import corpusmill.c\n",
        "b/two": "x = 1\n", "c": "y = 1\n", "d": "z = 1\n",
    }  # fmt: skip

    def key(**changed: str) -> str:
        for name, text in {**texts, **changed}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / f"{name}.py").write_text(text)
        kernel_cache.digest.cache_clear()
        kernel_cache._source.cache_clear()
        return kernel_cache.digest("corpusmill.a", tmp_path / "a.py")

    monkeypatch.setattr(kernel_cache, "ROOT", tmp_path)
    first = key()
    assert key() == first
    assert key(d="z = 2\n") == first  # nothing imports it
    for name in ("a", "b/one", "b/two", "c"):
        assert key(**{name: texts[name] + "# changed\n"}) != first
