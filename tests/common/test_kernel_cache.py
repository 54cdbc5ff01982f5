"""Kernels are compiled once, and again when anything below them has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpusmill.common import kernel_code, kernel_keys
from tests.conftest import IMPORT_PATH

USE = """
import sys
from corpusmill.pipeline.engine.unionfind import components
import numpy as np
ends = np.array([0, 1]), np.array([1, 2])
assert components(4, *ends).tolist() == [0, 0, 0, 3]
from corpusmill.common.kernel_cache import Kernel
from corpusmill.pipeline.engine import unionfind
kernels = [k.dispatcher for k in vars(unionfind).values() if isinstance(k, Kernel) and k.compiles]
print("numba" in sys.modules, sum(sum(k.stats.cache_misses.values()) for k in kernels))
"""


def numba_and_misses(folder: Path) -> tuple[bool, int]:
    """Whether a process that used a kernel imported Numba, and how many it compiled."""
    numba, misses = printed(folder, USE).split()
    return numba == "True", int(misses)


def printed(folder: Path, script: str) -> str:
    """What a process prints."""
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH, "CORPUSMILL_KERNEL_CACHE": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_second_process_compiles_nothing_and_needs_no_numba(tmp_path: Path) -> None:
    numba, misses = numba_and_misses(tmp_path)
    assert numba and misses > 0
    assert numba_and_misses(tmp_path) == (False, 0)


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    numba_and_misses(tmp_path)
    for file in tmp_path.rglob("*.code"):
        whole = file.read_bytes()
        for damaged in (whole[:-9], whole[: len(whole) // 2], b"", b"{}", whole[:-9] + b"\0" * 9):
            file.write_bytes(damaged)
            assert numba_and_misses(tmp_path) == (True, 0)  # Numba has its own copy
            assert file.read_bytes() == whole


SHIPPED = f"""
import pathlib, sys
from corpusmill.common import kernel_code, kernel_keys
kernel_keys.ROOT = pathlib.Path({{root!r}})
kernel_code.runs_portable = lambda: {{runs}}
{USE}
"""


@pytest.mark.skipif(not kernel_code.runs_portable(), reason="a wheel has no code for this processor")
def test_code_of_a_wheel_is_loaded_where_the_processor_runs_it_and_the_cache_has_none(tmp_path: Path) -> None:
    target = {
        "NUMBA_CPU_NAME": kernel_code.PORTABLE.name,
        "NUMBA_CPU_FEATURES": kernel_code.PORTABLE.features,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in target.items():
            patch.setenv(name, value)
        assert numba_and_misses(tmp_path / "wheel/machine_code")[0]
    cache = tmp_path / "cache"
    assert printed(cache, SHIPPED.format(root=str(tmp_path / "wheel"), runs=True)) == "False 0"
    assert not [*cache.rglob("*.code")]
    assert printed(cache, SHIPPED.format(root=str(tmp_path / "wheel"), runs=False)).startswith("True ")
    assert [*cache.rglob("*.code")]


VALUES = """
import sys
import numpy as np
from typing import NamedTuple
from corpusmill.common.kernel_cache import compiled

class Pair(NamedTuple):
    a: object
    b: object

@compiled
def several(pair, factor, offset=3):
    if factor == 0:
        raise ValueError("no factor")
    return pair.a * factor + offset, pair.b.sum(), len(pair.a) > 2

@compiled
def first(x):
    return x[0].a + x[1].b - 4

@compiled
def copy(x):
    return x.copy()

@compiled
def outer(x):
    return several(Pair(x, x), 2)[0]

small = np.arange(3, dtype=np.int16)
for x in (small, small.astype(np.float64), np.arange(6.0)[::2], np.asfortranarray(np.ones((2, 2))), small.view()):
    scaled, total, long = several(Pair(x, x), 2)
    assert scaled.tolist() == (x * 2 + 3).tolist() and total == x.sum() and long is (len(x) > 2), x
    assert several(Pair(x, x), 2.5, 1)[0].tolist() == (x * 2.5 + 1).tolist()
assert several(Pair(small, small), np.int64(2))[0].tolist() == [3, 5, 7]
assert several(Pair(small, small), 2**63)[1] == 3
assert outer(small).tolist() == [3, 5, 7]
mapped = [np.memmap(sys.argv[1], dtype, "r") for dtype in ("<i4", "<f8")]
for x in mapped:
    assert several((Pair(x, x)), 2)[1] == x.sum()
packed = [("a", "i4"), ("b", "f8")], [("a", "f8"), ("b", "i4")]
padded = np.dtype(packed[0], align=True), {"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [0, 24]}
points = [np.zeros(2, dtype) for dtype in (packed if sys.argv[2] == "packed" else packed + padded)]
for x in points:
    x["a"], x["b"] = 3, 4
    assert first(x) == 3.0
    copied = copy(x)
    assert copied.dtype == x.dtype and copied["a"].tolist() == [3, 3] and copied["b"].tolist() == [4, 4]
for wrong in ("text", [1], {}, several, 1j):
    try:
        several(Pair(small, small), wrong)
    except TypeError as error:
        assert "arrays, numbers and tuples" in str(error)
    else:
        raise AssertionError(wrong)
import pickle
assert pickle.loads(pickle.dumps(several)) is several
print("numba" in sys.modules)
for _ in range(2):
    try:
        several(Pair(small, small), 0)
    except ValueError as error:
        assert str(error) == "no factor"
    else:
        raise AssertionError("nothing raised")
import numba
assert numba.njit(lambda x: several(Pair(x, x), 2)[0])(small).tolist() == [3, 5, 7]
"""


def test_what_is_loaded_gives_what_was_compiled(tmp_path: Path) -> None:
    """Types of arrays, numbers and tuples apart; arrays, tuples and exceptions out; and beside Numba, imported afterwards."""
    script = tmp_path / "values.py"
    script.write_text(VALUES)
    (tmp_path / "data").write_bytes(bytes(range(64)))
    for layouts, second in (("packed", "False"), ("padded", "True")):  # which only Numba knows
        arguments = [str(tmp_path / "data"), layouts]
        run = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv[1:] = {arguments}; import values"
        assert [printed(tmp_path / layouts, run) for _ in range(2)] == ["True", second]


def test_without_the_loader_numba_does_it(tmp_path: Path) -> None:
    without = "from corpusmill.common import kernel_code\nkernel_code.natives = lambda: None\n" + USE
    for expected in (True, False):
        numba, misses = printed(tmp_path, without).split()
        assert numba == "True" and (int(misses) > 0) is expected
    assert not list(tmp_path.rglob("*.code"))


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(numba_and_misses, [tmp_path] * 3))
    assert sum(misses for _, misses in found) == numba_and_misses(tmp_path / "alone")[1]


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
print(len(power.dispatcher.nopython_signatures) if power.compiles else 0)  # none where `sums` is loaded
"""


def test_a_kernel_is_compiled_once_for_all_integers_that_another_passes(tmp_path: Path) -> None:
    script = tmp_path / "constants.py"
    script.write_text(CONSTANTS)
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
        assert numba_and_misses(tmp_path / "file")[1] > 0


def test_the_key_is_what_a_kernel_is_made_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = {
        "a": "from corpusmill.b import (\n    one,\n    two,\n)\n", "b/__init__": "", "b/one": "import corpusmill.c\n",
        "b/two": "x = 1\n", "c": "y = 1\n", "d": "z = 1\n",
    }  # fmt: skip

    def key(**changed: str) -> str:
        for name, text in {**texts, **changed}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / f"{name}.py").write_text(text)
        kernel_keys.digest.cache_clear()
        kernel_keys._source.cache_clear()
        return kernel_keys.digest("corpusmill.a", tmp_path / "a.py")

    monkeypatch.setattr(kernel_keys, "ROOT", tmp_path)
    first = key()
    assert key() == first
    assert key(d="z = 2\n") == first  # nothing imports it
    for name in ("a", "b/one", "b/two", "c"):
        assert key(**{name: texts[name] + "# changed\n"}) != first
