"""From a YAML file and `a.b=c` overrides to a checked model, or to one clear line about what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.yaml import parse, printable, shortened

MISTAKES = 10  # that are shown at once

Model = TypeVar("Model", bound=BaseModel)


def load(model: type[Model], path: str | Path, overrides: list[str] | None = None) -> Model:
    """Read `path` as YAML 1.2, apply `key.key=value` overrides, validate.

    Raises `UserError` with the file, the dotted key, what is allowed and the nearest valid name.
    """
    return validate(model, override(read_yaml(path), overrides or []), str(path))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML 1.2 mapping (`no` stays a string, `1e-5` a number)."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """The mapping that a YAML 1.2 text holds; `where` names it in errors."""
    value = parse(text, where)
    if not isinstance(value, dict):
        raise UserError(f"{where}: must be a mapping of keys to values, is {type(value).__name__}")
    return value


def override(config: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """A copy of `config` with each `a.b.c=value` set; values are read as YAML."""
    result: dict[str, Any] = _copy(config)
    for setting in settings:
        key, sep, text = setting.partition("=")
        if not sep or not key.strip():
            raise UserError(f"--set {setting}: must be key=value, such as --set dedup.similarity=0.7")
        value = parse(text, f"--set {shortened(setting)}") if text else None
        place = result
        *parents, last = key.strip().split(".")
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        place[last] = value
    return result


def validate(model: type[Model], config: dict[str, Any], where: str) -> Model:
    """`config` as `model`; raises `UserError` with one line per mistake."""
    try:
        return model.model_validate(config)
    except ValidationError as error:
        lines = dict.fromkeys(printable(_line(model, mistake, where)) for mistake in error.errors())
        rest = len(lines) - MISTAKES
        more = [f"{where}: and {rest} more mistakes"] if rest > 0 else []
        raise UserError("\n".join([*list(lines)[:MISTAKES], *more])) from None


def differences(before: Any, after: Any, key: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (value before, value after) of every value of two configs that differs; a list is one value."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for name in {**before, **after}:
            below = f"{key}.{name}" if key else name
            found |= differences(before.get(name), after.get(name), below)
        return found
    return {} if before == after else {key: (before, after)}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value


def _line(model: type[BaseModel], mistake: Any, where: str) -> str:
    location = [part for part in mistake["loc"] if not str(part).startswith("[")]
    key = ".".join(str(part) for part in location)
    kind = mistake["type"]
    if kind == "extra_forbidden":
        allowed = fields_at(model, location[:-1])
        listing = ", ".join(sorted(allowed))
        return f"{where}: {key}: unknown key{nearest(str(location[-1]), allowed)} (allowed here: {listing})"
    if kind == "missing":
        return f"{where}: {key}: missing, and it has no default"
    given = mistake.get("input")
    if kind in ("literal_error", "enum"):
        hint = nearest(
            str(given),
            [word.strip("' ") for word in mistake["ctx"]["expected"].replace(" or ", ",").split(",")],
        )
        return (
            f"{where}: {key}: {shortened(given)} is not allowed{hint} (allowed: {mistake['ctx']['expected']})"
        )
    if kind == "value_error":
        message = str(mistake["ctx"]["error"])
        return f"{where}: {key}: {message}" if key else f"{where}: {message}"
    shown = f", is {shortened(given)}" if isinstance(given, str | int | float | bool | None) else ""
    message = mistake["msg"][0].lower() + mistake["msg"][1:]
    return f"{where}: {key}: {message}{shown}"


def fields_at(model: type[BaseModel], location: list[Any]) -> list[str]:
    """Names of the fields that are valid at a place in the model's tree."""
    here: Any = model
    for part in location:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            here = field.annotation if field else None
        else:  # a mapping or a list: go on with its values' type
            arguments = [a for a in get_args(here) if a is not type(None)]
            here = arguments[-1] if arguments else None
        here = _model_in(here)
    models = [one for one in _members(here) if isinstance(one, type) and issubclass(one, BaseModel)]
    return list(models[0].model_fields) if len(models) == 1 else []


def _members(annotation: Any) -> list[Any]:
    """What a union, possibly of annotated types, may be."""
    if isinstance(annotation, type) or not (arguments := get_args(annotation)):
        return [annotation]
    return [one for argument in arguments for one in _members(argument)]


def _model_in(annotation: Any) -> Any:
    """The model in `Model | None`, or the annotation as it is."""
    for argument in get_args(annotation):
        if (
            isinstance(argument, type)
            and issubclass(argument, BaseModel)
            and type(None) in get_args(annotation)
        ):
            return argument
    return annotation
