"""Tables that take long to compute and never change, as bits of all code points: computed once for a machine, then read."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable
from functools import lru_cache, wraps
from importlib.metadata import version
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_keys import folder_of, keep

P = ParamSpec("P")
Make = Callable[P, npt.NDArray[Any]]


def stored(*, packages: tuple[str, ...] = ()) -> Callable[[Make[P]], Make[P]]:
    """Decorate a function of numbers that gives an array: it is kept in the folder of compiled kernels, for the content of the
    function's module and what that imports, for Python's version of Unicode, and for those of `packages`. The array is read-only,
    and processes share its memory. Where the folder cannot be written, each process computes for itself."""

    def decorate(make: Make[P]) -> Make[P]:
        @lru_cache(maxsize=16)
        @wraps(make)
        def read(*arguments: P.args, **named: P.kwargs) -> npt.NDArray[Any]:
            versions = [unicodedata.unidata_version, *(version(name) for name in packages)]
            words = [make.__name__, *map(str, arguments), *versions]
            file = folder_of(make) / f"{'-'.join(words)}.npy"
            try:
                return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
            except (OSError, ValueError, EOFError):  # not there, or not whole
                pass
            table = make(*arguments, **named)
            data = io.BytesIO()
            np.save(data, table, allow_pickle=False)
            keep(file, data.getvalue())
            table.flags.writeable = False
            return table

        return read

    return decorate
