"""A kernel's key changes with whatever its machine code depends on, and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from corpusmill.common.kernel_content import made_of

FIRST = '''
from typing import NamedTuple
import numpy as np
from corpusmill.common.kernel_cache import compiled

LIMIT = 3
TABLE = np.array([1, 2, 3], np.int64)
WORDS = ("a", 1.5, None)

class Pair(NamedTuple):
    one: int
    two: int

@compiled
def far(x):
    return x + 1

@compiled(inline="always")
def near(x, more=2):
    return far(x) + TABLE[0] + more

@compiled
def apart(x):
    return x

def made(step):
    def inner(x):
        return x + step
    return compiled(inner)

stepped = made(5)

@compiled
def first(x):
    """Says what it does."""
    if x in {1, 2, 4}:
        return near(x)
    if x < 0:
        return first(-x)
    pair = Pair(x, LIMIT)
    return stepped(pair.one) + np.int64(len(WORDS)) * 7
'''


def key(text: str = FIRST) -> str:
    names: dict[str, Any] = {"__name__": "corpusmill.made_up"}
    exec(compile(text, "made_up.py", "exec"), names)
    return made_of(names["first"].py_func)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("LIMIT = 3", "LIMIT = 3.0"),
        ("[1, 2, 3]", "[1, 2, 4]"),
        ("np.int64)", "np.int32)"),
        ("1.5", "2.5"),
        ("two: int", "other: int"),
        ("return x + 1", "return x + 2"),  # in a kernel that one of its own calls
        ("return x + 1", "return x - 1"),
        ("more=2", "more=3"),
        ('inline="always"', 'inline="never"'),
        ("made(5)", "made(6)"),
        ("return x + step", "return x * step"),
        ("{1, 2, 4}", "{1, 2, 5}"),
        ("* 7", "* 8"),
        ("first(-x)", "first(+x)"),
        ("pair.one", "pair.two"),
        ("np.int64(len", "np.int32(len"),
    ],
)
def test_what_is_compiled_in_counts(old: str, new: str) -> None:
    assert FIRST.count(old) == 1
    assert key(FIRST.replace(old, new)) != key()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Says what it does.", "Says it in other words."),
        ("LIMIT = 3", "# why\n\nLIMIT = 3  # so much"),
        ("def apart(x):\n    return x", "def apart(x):\n    return 2 * x"),
        ("from typing import NamedTuple", "import json\nfrom typing import NamedTuple"),
    ],
)
def test_nothing_else_counts(old: str, new: str) -> None:
    assert FIRST.count(old) == 1
    assert key(FIRST.replace(old, new)) == key()


def test_a_module_of_the_package_counts_by_what_is_taken_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from corpusmill.common import traffic

    text = FIRST.replace("LIMIT = 3", "from corpusmill.common import traffic").replace(
        "LIMIT)", "traffic.PAGE)"
    )
    before = key(text)
    monkeypatch.setattr(traffic, "PAGE_OF_OTHERS", 5, raising=False)
    assert key(text) == before
    monkeypatch.setattr(traffic, "PAGE", traffic.PAGE + 1)
    assert key(text) != before


SHIPPED = """
import importlib, pkgutil, sys
from corpusmill.common.kernel_cache import Kernel
from corpusmill.common.kernel_content import made_of
import corpusmill.pipeline.text as package

for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
    for name, one in sorted(vars(importlib.import_module(module.name)).items()):
        if isinstance(one, Kernel):
            print(name, made_of(one.py_func))
"""


def test_it_is_the_same_in_every_process() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", SHIPPED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and found[0].count(b"\n") > 20
