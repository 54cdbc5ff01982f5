"""What a recipe changes against a finished run, and whether stored signals suffice to judge it."""

from __future__ import annotations

from typing import Any, Final

from corpusmill.common.errors import UserError
from corpusmill.schemas.recipe import STAGES, Recipe

# Keys of `filter` that only say how signals are judged. Whatever else is in there changes what is measured or the text.
JUDGED: Final = ("rules", "thresholds", "disable", "skip_sources")
JUDGED_OF: Final = {
    "language": ("keep", "threshold"),
    "toxicity": ("remove_above", "remove_below"),
    "quality": ("remove_above", "remove_below"),
}
# Keys that decide nothing about a document, and those of a source.
WITHOUT_EFFECT: Final = ("name", "output", "cluster", "report")
DESCRIBING: Final = ("license", "attribution", "description")

Changes = dict[str, tuple[Any, Any]]


def changes(before: Recipe, after: Recipe) -> Changes:
    """Dotted key -> (value of the run, value asked for), for every key that differs and matters.

    Raises `UserError` for the first that stored signals cannot answer, naming the stage that must run again.
    """
    found: Changes = {}
    _walk("", _matters(before), _matters(after), found)
    for key, (old, new) in found.items():
        stage, why = _needs(key, old, new, after)
        if stage:
            raise UserError(
                f"what-if: {key}: differs from the run's ({shown(old)} -> {shown(new)}): {why}; {stage} must run again:"
                " corpusmill run RECIPE --set …"
            )
    return found


def shown(value: Any) -> str:
    """A value of a recipe in a line: lists in brackets, `none` for what is absent."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(item)}" for name, item in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _matters(recipe: Recipe) -> dict[str, Any]:
    config = recipe.model_dump(mode="json")
    return {name: value for name, value in config.items() if name not in WITHOUT_EFFECT}


def _walk(key: str, before: Any, after: Any, found: Changes) -> None:
    """Every leaf that differs. `language`, `toxicity` and `quality` switched on or off are leaves."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            _walk(f"{key}.{name}" if key else name, before.get(name), after.get(name), found)
    elif before != after:
        found[key] = before, after


def _needs(key: str, old: Any, new: Any, after: Recipe) -> tuple[str, str]:
    """(the stage that would have to run again or "", why)."""
    place, *rest = key.split(".")
    if place == "filter":
        why = _text(rest, old, new, after)
        return ("filter" if why else ""), why
    if place == "sources":
        if rest[1:2] and rest[1] in DESCRIBING:
            return "", ""
        return (
            "dedup" if rest[1:] == ["priority"] else "ingest"
        ), "what-if judges the filter's signals alone"
    if place in STAGES:
        return place, "what-if judges the filter's signals alone"
    return "every stage", "what-if judges the filter's signals alone"


def _text(rest: list[str], old: Any, new: Any, after: Recipe) -> str:
    """Why a key of `filter` cannot be answered from signals, or ""."""
    name = rest[0]
    if name in JUDGED:
        return ""
    if name in JUDGED_OF:
        if len(rest) > 1:
            return (
                "" if rest[1] in JUDGED_OF[name] else "other signals would be measured, which takes the text"
            )
        if old is None:
            return "the run measured no such signal"
        scores = [getattr(after.filter, other) for other in ("toxicity", "quality")]
        if name == "language" and any(s and (s.remove_above, s.remove_below) != (None, None) for s in scores):
            return "without it the classifiers score texts of all languages, which takes the text"
        return ""
    return "other signals would be measured or other text cut, which takes the text"
