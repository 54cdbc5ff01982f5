"""Rules as data: the sets of `configs/rules/*.yaml`, with a recipe's thresholds, in the order of judging."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pydantic import Field, model_validator

from schemas.config import read_yaml, validate
from schemas.errors import UserError, nearest
from schemas.filter import ClassifierParams, FilterParams, RuleSet
from schemas.manifest import Strict

RULES_FOLDER: Final = Path(__file__).resolve().parents[3] / "configs" / "rules"

Comparison = Literal["at_least", "at_most", "more_than", "less_than", "among"]

# Sets that need a model; they are judged after the rules on the text, in this order.
MODEL_SETS: Final = ("language", "toxicity", "quality")
LANGUAGE_KEEP: Final = "language.keep"


@dataclass(frozen=True)
class Rule:
    """`signal` must satisfy `comparison` with `threshold`, or the document is removed."""

    name: str  # <rule set>.<rule>
    signal: str
    comparison: Comparison
    threshold: float | None
    among: tuple[str, ...] = ()

    @property
    def set_name(self) -> str:
        return self.name.split(".", 1)[0]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "signal": self.signal, "comparison": self.comparison,
            "threshold": self.threshold, "among": list(self.among),
        }  # fmt: skip


class RuleEntry(Strict):
    """One rule of a file: a name, a signal and exactly one comparison."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    signal: str
    at_least: float | None = None
    at_most: float | None = None
    more_than: float | None = None
    less_than: float | None = None

    @model_validator(mode="after")
    def one_comparison(self) -> RuleEntry:
        if sum(getattr(self, name) is not None for name in COMPARISONS) != 1:
            raise ValueError(f"rule {self.name}: give exactly one of {', '.join(COMPARISONS)}")
        return self

    @property
    def comparison(self) -> Comparison:
        return next(name for name in COMPARISONS if getattr(self, name) is not None)


COMPARISONS: Final[tuple[Comparison, ...]] = ("at_least", "at_most", "more_than", "less_than")


class RuleFile(Strict):
    """A rule set as it stands in its file."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    origin: str
    rules: list[RuleEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def distinct(self) -> RuleFile:
        names = [rule.name for rule in self.rules]
        if len(set(names)) != len(names):
            raise ValueError("rules: a name appears twice")
        return self


@lru_cache(maxsize=32)
def rule_set(name: str) -> tuple[Rule, ...]:
    """The rules of a set with their published thresholds.

    Raises `UserError` naming the file and what is wrong in it.
    """
    path = RULES_FOLDER / f"{name}.yaml"
    file = validate(RuleFile, read_yaml(path), str(path))
    if file.name != name:
        raise UserError(f"{path}: name: must be '{name}', as the file's own, is '{file.name}'")
    return tuple(
        Rule(f"{name}.{rule.name}", rule.signal, rule.comparison, getattr(rule, rule.comparison))
        for rule in file.rules
    )


def resolve(params: FilterParams) -> list[Rule]:
    """The rules to judge, in order: `params.rules` as listed, then language, toxicity, quality.

    Thresholds of the recipe replace the published ones, disabled rules are left out. Raises `UserError` for a
    name in `thresholds`, `disable` or `skip_sources` that is no rule or rule set.
    """
    known = {rule.name: rule for name in get_args(RuleSet) for rule in rule_set(name)}
    own = _model_rules(params)
    for key, names in (("thresholds", params.thresholds), ("disable", params.disable)):
        allowed = [*known, *(() if key == "thresholds" else [rule.name for rule in own])]
        for name in names:
            if name in allowed:
                continue
            hint = nearest(name, allowed)
            if name.split(".")[0] in MODEL_SETS and key == "thresholds":
                hint = f"; set it as filter.{name}"
            raise UserError(f"filter.{key}: '{name}' is no rule{hint} (rules are in configs/rules/)")
    sets = [*get_args(RuleSet), *MODEL_SETS]
    for source, names in params.skip_sources.items():
        for name in names:
            if name not in (*sets, "*"):
                hint = nearest(name, sets)
                where = f"filter.skip_sources.{source}"
                raise UserError(f"{where}: '{name}' is no rule set{hint} (allowed: {', '.join(sets)}, *)")
    rules = [rule for name in dict.fromkeys(params.rules) for rule in rule_set(name)] + own
    return [_with_threshold(rule, params.thresholds) for rule in rules if rule.name not in params.disable]


def skipped(params: FilterParams, source: str) -> set[str]:
    """Names of the rule sets that are not judged in `source`."""
    names = params.skip_sources.get(source, [])
    return {*get_args(RuleSet), *MODEL_SETS} if "*" in names else set(names)


def _with_threshold(rule: Rule, thresholds: dict[str, float]) -> Rule:
    value = thresholds.get(rule.name, rule.threshold)
    return Rule(rule.name, rule.signal, rule.comparison, value, rule.among)


def _model_rules(params: FilterParams) -> list[Rule]:
    rules = []
    if params.language is not None:
        if params.language.keep is not None:
            keep = tuple(sorted(set(params.language.keep)))
            rules.append(Rule(LANGUAGE_KEEP, "language.code", "among", None, keep))
        rules.append(Rule("language.threshold", "language.score", "at_least", params.language.threshold))
    for name in ("toxicity", "quality"):
        classifier: ClassifierParams | None = getattr(params, name)
        if classifier is None:
            continue
        if classifier.remove_above is not None:
            rules.append(Rule(f"{name}.remove_above", f"{name}.score", "at_most", classifier.remove_above))
        if classifier.remove_below is not None:
            rules.append(Rule(f"{name}.remove_below", f"{name}.score", "at_least", classifier.remove_below))
    return rules
