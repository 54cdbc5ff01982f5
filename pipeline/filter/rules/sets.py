"""The rule sets of a recipe, with its thresholds, in the order of judging."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from corpusmill.common.errors import UserError, nearest
from corpusmill.pipeline.filter.rules.rule_files import LineRule, LoadedSet, Rule, load_file
from corpusmill.schemas.filter import (
    RULES_FOLDER,
    ClassifierParams,
    FilterParams,
    SignalModelParams,
    ToxicityParams,
    is_rule_file,
    rule_sets,
)

AnyRule = TypeVar("AnyRule", Rule, LineRule)

# Sets that need a model; they are judged after the rules on the text, in this order.
MODEL_SETS: Final = ("language", "toxicity", "quality", "quality_signals")
LANGUAGE_KEEP: Final = "language.keep"
URL_SET: Final = "url"
LISTED: Final = "listed_words"  # the signal of a list of words, `<list>.listed_words`
# With `filter.cut_lines`: a document of which no line would be left goes.
ALL_CUT: Final = Rule("lines.all_cut", "lines.cut_lines_ratio", "less_than", 1.0)


@lru_cache(maxsize=64)
def rule_set(name: str) -> LoadedSet:
    """A set that ships, with its published thresholds.

    Raises `UserError` naming the file and what is wrong in it.
    """
    found = load_file(str(RULES_FOLDER / f"{name}.yaml"))
    if found.name != name:
        raise UserError(f"{found.where}: name: must be '{name}', as the file's own, is '{found.name}'")
    return found


def chosen_sets(params: FilterParams) -> list[LoadedSet]:
    """The sets to judge, in order: the URL set where lists of URLs are given, then `params.rules`.

    Raises `UserError` for a user's set whose name is taken, and for a set whose lists or model are missing.
    """
    names = list(dict.fromkeys(params.rules))
    if params.urls is not None and URL_SET not in names:
        names.insert(0, URL_SET)
    found: dict[str, LoadedSet] = {}
    for name in names:
        if not is_rule_file(name):
            _include(name, found)
            continue
        loaded = load_file(name)
        taken = found[loaded.name].where if loaded.name in found else None
        if loaded.name in (*rule_sets(), *MODEL_SETS, ALL_CUT.set_name):
            taken = "the sets that ship"
        if taken is not None:
            raise UserError(f"{name}: name: '{loaded.name}' is taken by {taken}; give yours another")
        for other in loaded.include:
            if other not in rule_sets():
                hint = nearest(other, rule_sets())
                allowed = ", ".join(rule_sets())
                raise UserError(f"{name}: include: '{other}' is not a rule set{hint} (allowed: {allowed})")
            _include(other, found)
        found[loaded.name] = loaded
    for loaded in found.values():
        _sections_given(loaded, params)
    return list(found.values())


def _include(name: str, found: dict[str, LoadedSet]) -> None:
    """Add a set that ships, after those that it includes; none is there twice."""
    if name not in found:
        loaded = rule_set(name)
        for other in loaded.include:
            _include(other, found)
        found[name] = loaded


def resolve(params: FilterParams) -> list[Rule]:
    """The rules to judge, in order: those of `chosen_sets`, then those of `MODEL_SETS`.

    Thresholds of the recipe replace the published ones, disabled rules are left out. Raises `UserError` for a
    name in `thresholds`, `disable` or `skip_sources` that is no rule or rule set.
    """
    sets = chosen_sets(params)
    own = _model_rules(params)
    _check_names(params, sets, own)
    rules = [rule for loaded in sets for rule in loaded.rules]
    if params.cut_lines and any(loaded.lines for loaded in sets):
        rules.append(ALL_CUT)
    return _as_asked([*rules, *own], params)


def line_rules(params: FilterParams) -> dict[str, tuple[LineRule, ...]]:
    """Set name -> its rules on lines, in order, with the recipe's thresholds; sets without such are left out."""
    found = {loaded.name: tuple(_as_asked(loaded.lines, params)) for loaded in chosen_sets(params)}
    return {name: rules for name, rules in found.items() if rules}


def skips(params: FilterParams, source: str, set_name: str) -> bool:
    """Whether a rule set is not judged in `source`, and cuts nothing there."""
    names = params.skip_sources.get(source, [])
    return "*" in names or set_name in names


def _as_asked(rules: Iterable[AnyRule], params: FilterParams) -> list[AnyRule]:
    return [
        replace(rule, threshold=params.thresholds.get(rule.name, rule.threshold))
        for rule in rules
        if rule.name not in params.disable
    ]


def _check_names(params: FilterParams, sets: list[LoadedSet], own: list[Rule]) -> None:
    by_name = {loaded.name: loaded for loaded in sets}
    for key, names in (("thresholds", params.thresholds), ("disable", params.disable)):
        for name in names:
            first = name.split(".")[0]
            loaded = by_name.get(first) or (rule_set(first) if first in rule_sets() else None)
            known = _rule_names(loaded, key) if loaded is not None else []
            known += [rule.name for rule in (ALL_CUT, *own)] if key == "disable" else []
            if name in known:
                continue
            shipped = {other: rule_set(other) for other in rule_sets()}
            everything = [rule for s in {**shipped, **by_name}.values() for rule in _rule_names(s, key)]
            hint = nearest(name, known or everything)
            if first in MODEL_SETS and key == "thresholds":
                hint = f"; set it as filter.{name}"
            raise UserError(
                f"filter.{key}: '{name}' is not a rule{hint} (`corpusmill signals` lists the sets)"
            )
    allowed = list(dict.fromkeys([*rule_sets(), *by_name, ALL_CUT.set_name, *MODEL_SETS]))
    for source, names_there in params.skip_sources.items():
        for name in names_there:
            if name not in (*allowed, "*"):
                hint = nearest(name, allowed)
                where = f"filter.skip_sources.{source}"
                raise UserError(
                    f"{where}: '{name}' is not a rule set{hint} (allowed: {', '.join(allowed)}, *)"
                )


def _rule_names(loaded: LoadedSet, key: str) -> list[str]:
    """The names that `thresholds` or `disable` may hold: a rule on lines without a number has no threshold."""
    lines = [rule.name for rule in loaded.lines if key == "disable" or rule.threshold is not None]
    return [*(rule.name for rule in loaded.rules), *lines]


def _sections_given(loaded: LoadedSet, params: FilterParams) -> None:
    """Refuse a set that looks at lists which the recipe does not give (none ship), or at a model that it switched off."""
    for rule in loaded.rules:
        family, _, value = rule.signal.partition(".")
        if value == LISTED and family not in params.word_lists:
            raise UserError(
                f"filter.word_lists.{family}: missing; the rule {rule.name} counts the words of a list, and none is"
                " shipped: give files with one word or phrase per line"
            )
        if family in MODEL_SETS and getattr(params, family) is None:
            raise UserError(
                f"filter.{family}: null; the rule {rule.name} looks at {rule.signal}, which needs this model: leave"
                f" {{}} there, or the set {loaded.name} out"
            )
        if family == "url" and params.urls is None:
            raise UserError(
                f"filter.urls: missing; the rule {rule.name} looks at lists of domains and words, and none is shipped:"
                " give files with one entry per line"
            )


def _model_rules(params: FilterParams) -> list[Rule]:
    rules = []
    if params.language is not None:
        if params.language.keep is not None:
            keep = tuple(sorted(set(params.language.keep)))
            rules.append(Rule(LANGUAGE_KEEP, "language.code", "among", None, keep))
        rules.append(Rule("language.threshold", "language.score", "at_least", params.language.threshold))
    for name in MODEL_SETS[1:]:
        classifier: ClassifierParams | SignalModelParams | None = getattr(params, name)
        if classifier is None:
            continue
        if classifier.remove_above is not None:
            rules.append(Rule(f"{name}.remove_above", f"{name}.score", "at_most", classifier.remove_above))
        if classifier.remove_below is not None:
            rules.append(Rule(f"{name}.remove_below", f"{name}.score", "at_least", classifier.remove_below))
        if isinstance(classifier, ToxicityParams):
            rules += [
                Rule(f"{name}.{label}_above", f"{name}.{label}", "at_most", limit)
                for label, limit in sorted(classifier.remove_labels.items())
            ]
    return rules
