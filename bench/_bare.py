"""A checkout on machines with torch and numpy alone: `src` is found without an installation, and a stand-in for pydantic reads
the trainer's configs, which are pydantic models.

It fills in defaults, makes the nested models, runs the `model_validator`s and refuses unknown keys. It checks no types
and no bounds: what a bench gives is written in the bench. tests/bench/test_bare.py compares its configs with pydantic's.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any


def find_checkout() -> None:
    """Make `corpusmill` importable from this checkout, here and in child processes, if it is not installed."""
    if importlib.util.find_spec("corpusmill") is None:
        source = str(Path(__file__).resolve().parents[1] / "src")
        sys.path.append(source)
        given = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([source, given] if given else [source])


def stand_in() -> str | None:
    """Find the checkout, and install the stand-in for pydantic if that is missing; returns a sentence that reports it."""
    find_checkout()
    try:
        import pydantic  # noqa: F401 (asked for, not used)
    except ImportError:
        sys.modules["pydantic"] = _module()
        return "pydantic is not installed: the configs are read by a stand-in (bench/_bare.py)"
    return None


MISSING: Any = object()


class FieldInfo:
    """The arguments of `Field`; the default and `exclude_if` are used."""

    def __init__(
        self,
        default: Any = MISSING,
        *,
        default_factory: Callable[[], Any] | None = None,
        exclude_if: Callable[[Any], bool] = lambda _: False,
        **_: Any,
    ) -> None:
        self.default, self.default_factory = None if default is ... else default, default_factory
        self.exclude_if = exclude_if
        self.required = default in (MISSING, ...) if default_factory is None else False

    def value(self) -> Any:
        return self.default_factory() if self.default_factory else self.default


class ValidationError(ValueError):
    """Never raised: mistakes surface as the ValueError that they are."""


class BaseModel:
    """As pydantic's, as far as `schemas` uses it."""

    model_fields: typing.ClassVar[dict[str, FieldInfo]] = {}
    model_fields_set: set[str]
    _validators: typing.ClassVar[list[tuple[str, str]]] = []

    def __init_subclass__(cls) -> None:
        cls.model_fields, cls._validators = dict(cls.model_fields), list(cls._validators)
        for name in inspect.get_annotations(cls):
            given = cls.__dict__.get(name, MISSING)
            cls.model_fields[name] = given if isinstance(given, FieldInfo) else FieldInfo(given)
            if given is not MISSING:
                delattr(cls, name)
        for name, value in list(vars(cls).items()):
            if mode := getattr(value, "validates", None):
                cls._validators.append((mode, name))

    def __init__(self, **given: Any) -> None:
        for mode, name in self._validators:
            given = getattr(type(self), name)(given) if mode == "before" else given
        if unknown := given.keys() - self.model_fields.keys():
            raise ValueError(f"{type(self).__name__}: unknown key {', '.join(sorted(unknown))}")
        kinds = typing.get_type_hints(type(self))
        for name, field in self.model_fields.items():
            if name not in given and field.required:
                raise ValueError(f"{type(self).__name__}: {name} is missing")
            self.__dict__[name] = _made(kinds[name], given[name]) if name in given else field.value()
        self.__dict__["model_fields_set"] = set(given)
        for mode, name in self._validators:
            if mode == "after":
                getattr(self, name)()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.model_dump() == other.model_dump()

    __hash__ = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    @classmethod
    def model_validate(cls, given: Any) -> Any:
        return given if isinstance(given, cls) else cls(**given)

    def model_copy(self, *, update: dict[str, Any] | None = None) -> Any:
        copy = object.__new__(type(self))
        copy.__dict__.update({**self.__dict__, **(update or {})})
        return copy

    def model_dump(self, *, exclude: set[str] | None = None, **_: Any) -> dict[str, Any]:
        names = [name for name in self.model_fields if name not in (exclude or ())]
        values = {name: self.__dict__[name] for name in names}
        return {
            name: _plain(value)
            for name, value in values.items()
            if not self.model_fields[name].exclude_if(value)
        }


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return type(value)(map(_plain, value)) if isinstance(value, list | tuple) else value


def _made(kind: Any, value: Any) -> Any:
    """`value` converted by the annotation: mappings become models, lists tuples."""
    parts, origin = typing.get_args(kind), typing.get_origin(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_validate(value)
    if origin in (typing.Union, types.UnionType) and isinstance(value, dict | list):
        models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        return _made([*models, *(part for part in parts if part is not type(None))][0], value)
    if origin is list and isinstance(value, list):
        return [_made(parts[0], item) for item in value]
    if origin is tuple and isinstance(value, list):
        return tuple(value)
    return value


def _validator(*_: Any, mode: str = "after", **__: Any) -> Callable[[Any], Any]:
    def mark(function: Any) -> Any:
        function.validates = mode
        return function

    return mark


def _module() -> types.ModuleType:
    made = types.ModuleType("pydantic")
    made.__dict__.update(
        BaseModel=BaseModel, ConfigDict=dict, Field=FieldInfo, ValidationError=ValidationError,
        model_validator=_validator,
    )  # fmt: skip
    return made
