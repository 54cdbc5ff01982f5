"""Signals of a user's own: the Python files of `filter.plugins`, loaded by path in every process.

A plugin is code of the user's, run with the user's rights, as a recipe's author means it to be: only local files
are loaded, never a URL. What it registers stays apart from the built-in signals, so that two recipes in one
process do not see each other's. An error in a measure is one line that names the file and the signal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum

if TYPE_CHECKING:
    from corpusmill.pipeline.filter.signals.registry import Measure, Registry
    from corpusmill.pipeline.filter.text.view import TextView
    from corpusmill.schemas.tables import SignalSpec


_OTHERS: Final = (
    "language",
    "toxicity",
    "quality",
    "quality_signals",
    "lines",
    "url",
)  # of models, cut lines, lists of URLs


def checksums(files: Sequence[str]) -> list[str]:
    """The xxh3 of each file's bytes, in order: part of the stage's key. Raises `UserError`."""
    return [checksum(_bytes(file)) for file in files]


def load(files: Sequence[str]) -> Registry:
    """The signals of all files, in order. Raises `UserError` for a file that cannot be loaded, that defines no signal,
    or a name that is taken."""
    from corpusmill.pipeline.filter.signals.registry import Registry

    together = Registry({}, set())
    taken: dict[str, str] = {}
    for file in files:
        data = _bytes(file)
        found = _loaded(file, checksum(data), data)
        for name in found.measures:
            if (family := name.split(".")[0]) in _families():
                raise UserError(
                    f"{file}: signal {name}: the family '{family}' is built in; name it my_{name}"
                )
            if name in taken:
                raise UserError(f"{file}: signal {name} is taken by {taken[name]}; give it another name")
            taken[name] = file
        together.measures.update(found.measures)
        together.on_demand.update(found.on_demand)
    return together


@lru_cache(maxsize=1)
def _families() -> frozenset[str]:
    """The first halves of all signals' names but plugins'; rule sets have signals of their own."""
    from corpusmill.pipeline.filter.signals.catalogue import every_spec
    from corpusmill.schemas.filter import rule_sets

    of_sets = {name.replace("@", "_") for name in rule_sets()}
    return frozenset({*of_sets, *(s.name.split(".")[0] for s in every_spec()), *_OTHERS})


def _bytes(file: str) -> bytes:
    if "://" in file:
        raise UserError(
            f"filter.plugins: {file}: a plugin is a local file, because it is executed; copy it here first"
        )
    try:
        return Path(file).read_bytes()
    except FileNotFoundError:
        raise UserError(f"filter.plugins: {file}: no such file") from None
    except OSError as error:
        raise UserError(f"filter.plugins: {file}: cannot be read: {error.strerror}") from None


@lru_cache(maxsize=64)
def _loaded(file: str, xxh3: str, data: bytes) -> Registry:
    """The signals that a file of these bytes defines; a process runs it once."""
    import corpusmill.pipeline.filter.signals.catalogue  # noqa: F401 (the built-in signals first: their names are taken)
    from corpusmill.pipeline.filter.signals.registry import Registry, apart

    module = ModuleType(f"_plugin_{xxh3}")
    module.__file__ = file
    sys.modules[module.__name__] = module  # where dataclasses and the like look for a class's module
    with apart() as found:
        try:
            exec(compile(data, file, "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            del sys.modules[module.__name__]
            raise UserError(f"{file}: cannot be loaded: {_described(error, file)}") from None
    if not found.measures:
        raise UserError(f"{file}: defines no signal; decorate a function with @signal")
    checked = {name: (spec, _checked(file, spec, own)) for name, (spec, own) in found.measures.items()}
    return Registry(checked, found.on_demand)


def _checked(file: str, spec: SignalSpec, measure: Measure) -> Measure:
    """`measure`, whose result is held against its spec."""

    def measured(view: TextView) -> Any:
        where = f"{file}: signal {spec.name}"
        try:
            values = measure(view)
        except Exception as error:
            raise UserError(f"{where}: {_described(error, file)}") from None
        return _column(where, spec, values, len(view))

    return measured


def _column(where: str, spec: SignalSpec, values: Any, documents: int) -> Any:
    """What a measure returned as NumPy array, or as Arrow array of strings."""
    import numpy as np
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not hasattr(values, "__len__") or np.ndim(values) != 1 or len(values) != documents:
        shape = f"shape {np.shape(values)}" if np.ndim(values) != 1 else f"{len(values)} values"
        raise UserError(
            f"{where}: returned {shape} for {documents} documents; one value per document is needed"
        )
    if spec.dtype == "string":
        try:
            return pa.array(values, pa.string())
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UserError(f"{where}: returned no strings: {_described(error, where)}") from None
    if isinstance(values, pa.Array):
        if values.null_count:
            raise UserError(f"{where}: returned null for {values.null_count} of {documents} documents")
        values = values.to_numpy(zero_copy_only=False)
    values = np.asarray(values)
    kinds = {"float": "fiu", "int": "iu", "bool": "b"}[spec.dtype]
    if values.dtype.kind not in kinds and documents:
        raise UserError(f"{where}: returned values of type {values.dtype}, where its dtype is {spec.dtype}")
    if spec.dtype == "bool":
        return values.astype(np.bool_)
    with np.errstate(over="ignore"):  # too large for the column: infinite, and refused below
        stored = values.astype(np.float32) if spec.dtype == "float" else values
    if not np.isfinite(stored).all():
        wrong = int(np.flatnonzero(~np.isfinite(stored))[0])
        raise UserError(f"{where}: returned {values[wrong]}, which is not a finite number")
    low, high = spec.range
    if documents and ((low is not None and stored.min() < low) or (high is not None and stored.max() > high)):
        raise UserError(
            f"{where}: returned values from {stored.min()} to {stored.max()}; its range is {low} to {high}"
        )
    if spec.dtype == "int" and documents and int(stored.max()) > np.iinfo(np.int64).max:
        raise UserError(f"{where}: returned {stored.max()}, more than a column of integers holds")
    return stored if spec.dtype == "float" else stored.astype(np.int64)


def _described(error: BaseException, file: str) -> str:
    """An exception in one line, with the line of the plugin where it came from."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    text = " ".join(str(error).split())[:200]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}{': ' if text else ''}{text}"
