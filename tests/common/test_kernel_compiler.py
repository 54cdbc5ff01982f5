"""References to arrays: none are counted for those that a kernel is given, and what it makes itself is freed, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import IMPORT_PATH

KERNELS = """
from typing import NamedTuple
import numpy as np
from corpusmill.common.kernel_cache import compiled

class Table(NamedTuple):
    keys: object
    data: object

@compiled(inline="always")
def place(table, data, first, size):
    slot = size & 3
    while table.keys[slot] != 0:
        k = 0
        while k < size and table.data[slot + k] == data[first + k]:
            k += 1
        if k == size:
            break
        slot = (slot + 1) & 3
    return slot

@compiled
def places(table, data, out):
    for w in range(len(out)):
        out[w] = place(table, data, w, w % 3 + 1)

@compiled
def turns(given, times):
    "The sum after exchanging an array that is given with one that is not."
    own = np.ones(len(given), np.int64)
    for n in range(times):
        given, own = own[:], given[::-1]
        made = np.empty(1000, np.int64)
        made[:] = n
        if n % 2:
            own = made[: len(given)]
    return given.sum() + own.sum()

@compiled
def behind(values, n):
    "A slice: its arrays are counted, as it is handed out."
    return values[n:], len(values)

@compiled
def kept_slice(n):
    rest = np.arange(1000)
    rest, _ = behind(rest, n)
    for k in range(50):
        other = np.full(1000, k)
        rest[0] += other[0] - k
    return rest.sum()

@compiled
def sliced(values, n):
    return behind(behind(values, n)[0], n)[0].sum()
"""


def test_no_reference_is_counted_in_a_loop(tmp_path: Path) -> None:
    printed(
        tmp_path,
        """
table = Table(np.zeros(8, np.int64), np.zeros(20, np.uint8))
arguments = table, np.zeros(20, np.uint8), np.empty(9, np.int64)
places(*arguments)
import numba
from corpusmill.common.kernel_compiler import _Compiler
for pipeline, counts in ((_Compiler, False), (numba.core.compiler.Compiler, True)):
    plain = numba.njit(pipeline_class=pipeline)(places.py_func)
    plain(*arguments)
    (code,) = plain.inspect_llvm().values()
    kernel = code.split("define ")[1]  # behind it: how Python calls it
    assert ("@NRT_incref(" in kernel) is counts, pipeline
""",
    )


def test_all_that_a_kernel_makes_is_freed(tmp_path: Path) -> None:
    printed(
        tmp_path,
        """
import sys
given = np.arange(10)
turns(given, 1), kept_slice(3), sliced(given, 2)
from numba.core.runtime import rtsys
before, references = rtsys.get_allocation_stats(), sys.getrefcount(given)

for times in range(60):
    assert turns(given, times) == (55 if times < 2 else turns.py_func(given, times)), times
    assert kept_slice(times) == np.arange(times, 1000).sum()
    assert sliced(given, 2) == given[4:].sum()
    half, size = behind(given, 5)
    assert half.tolist() == [5, 6, 7, 8, 9] and size == 10
    del half
after = rtsys.get_allocation_stats()
assert after.alloc - before.alloc == after.free - before.free > 0, (before, after)
assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free > 0, (before, after)
assert sys.getrefcount(given) == references
half = behind(np.arange(1000), 990)[0]
assert half.tolist() == [*range(990, 1000)] and [np.full(1000, k).sum() for k in range(50)]
assert half.tolist() == [*range(990, 1000)]
""",
    )


def printed(folder: Path, script: str) -> None:
    """Runs it in a process of its own, whose kernels are those of a module in `folder`."""
    (folder / "kernels_here.py").write_text(KERNELS)
    env = {
        **os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{IMPORT_PATH}", "NUMBA_NRT_STATS": "1",
        "CORPUSMILL_KERNEL_CACHE": str(folder / "cache"),
    }  # fmt: skip
    code = "from kernels_here import *\nfrom kernels_here import np, compiled\n" + script
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert not done.returncode, done.stderr
