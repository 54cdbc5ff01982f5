"""YAML 1.2 to plain data, within limits: whatever the text is, there is data or one line about what is wrong."""

from __future__ import annotations

import math
from typing import Any

from corpusmill.common.errors import UserError

LEVELS = 32  # of mappings and lists in each other
VALUES = 100_000  # in a file, after its aliases are replaced by what they stand for
INTEGER = 2**63  # the magnitude of integers is below this


def parse(text: str, where: str) -> Any:
    """What a YAML 1.2 text holds: mappings with string keys, lists, strings, finite numbers, booleans and null (`no` stays a
    string, `1e-5` is a number, `2026-01-01` a string). `where` names the text in errors.

    Raises `UserError` for anything else: other types and tags, mappings that contain themselves, deep nesting, aliases that
    multiply, integers outside of 64 bits, infinities.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    class Constructor(SafeConstructor):
        pass

    Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = Constructor
    try:
        value = reader.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UserError(f"{where}{line}: not valid YAML: {printable(error.problem or '')}") from None
    except YAMLError as error:
        raise UserError(f"{where}: not valid YAML: {printable(str(error).splitlines()[0])}") from None
    except RecursionError:
        raise UserError(
            f"{where}: nested too deeply; {LEVELS} levels of mappings and lists are allowed"
        ) from None
    except (
        Exception
    ) as error:  # a tag that its value does not have, such as `!!int x`; whatever else the parser trips over
        raise UserError(
            f"{where}: not valid YAML: {type(error).__name__}: {printable(str(error))[:200]}"
        ) from None
    _check(value, where)
    return value


def _check(value: Any, where: str) -> None:
    """Raise `UserError` for data that is not plain, with the dotted key of the place."""
    pending: list[tuple[Any, tuple[str, ...], tuple[int, ...]]] = [(value, (), ())]
    count = 0
    while pending:
        here, key, parents = pending.pop()
        count += 1
        if count > VALUES:
            raise UserError(f"{where}: more than {VALUES:,} values, with what its aliases (*name) stand for")
        if isinstance(here, dict | list):
            at = f"{where}: {printable('.'.join(key))}" if key else where
            if id(here) in parents:
                raise UserError(f"{at}: contains itself by an alias (*name); write its value out")
            if len(parents) == LEVELS:
                raise UserError(
                    f"{where}: {printable('.'.join(key[:3]))}: nested too deeply; {LEVELS} levels of mappings and lists are allowed"
                )
            inside = (*parents, id(here))
            if isinstance(here, list):
                pending += [(item, (*key, str(i)), inside) for i, item in enumerate(here)]
                continue
            for name, item in here.items():
                if not isinstance(name, str):
                    raise UserError(f"{at}: {shortened(name)}: a key must be a string; put it in quotes")
                _text(name, at)
                pending.append((item, (*key, name), inside))
        else:
            _scalar(here, f"{where}: {printable('.'.join(key))}" if key else where)


def _scalar(value: Any, at: str) -> None:
    if isinstance(value, str):
        _text(value, at)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise UserError(f"{at}: must be a finite number, is {value}")
    elif isinstance(value, int):
        if not -INTEGER <= value < INTEGER:
            raise UserError(
                f"{at}: must be an integer of 64 bits (below 9.2e18), is of {value.bit_length()} bits"
            )
    elif value is not None:
        raise UserError(
            f"{at}: of type {type(value).__name__}; allowed: mapping, list, string, number, true, false, null"
        )


def _text(value: str, at: str) -> None:
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise UserError(
            f"{at}: {shortened(value)}: NUL and half of a surrogate pair are not allowed in a string"
        )


def shortened(value: Any, chars: int = 60) -> str:
    """A value as it is shown in an error."""
    shown = repr(value)
    return shown if len(shown) <= chars else f"{shown[: chars - 1]}…"


def printable(text: str) -> str:
    """A text in one line: what is not printable is escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )
