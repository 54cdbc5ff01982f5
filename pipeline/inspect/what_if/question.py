"""The question of `what-if`: a finished run, what a recipe changes against it, and whether stored signals suffice to judge it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.parquet as pq
from pydantic import ValidationError

from corpusmill.common.config import differences
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import recipe_of, stage_folders
from corpusmill.pipeline.filter.quality_signals.scores import SCORE as QUALITY_SCORE
from corpusmill.pipeline.filter.rules.judge import columns_of
from corpusmill.pipeline.filter.rules.rule_files import Rule
from corpusmill.pipeline.filter.rules.sets import MODEL_SETS, line_rules, resolve, skips
from corpusmill.pipeline.filter.stage import Filter
from corpusmill.pipeline.inspect.what_if.compare import BESIDE, Side
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.manifest import StageManifest, manifest_name
from corpusmill.schemas.recipe import FOLDERS, STAGES, Recipe

# Keys of `filter` that only say how signals are judged. Whatever else is in there changes what is measured or the text.
JUDGED: Final = ("rules", "thresholds", "disable", "skip_sources")
JUDGED_OF: Final = {
    "language": ("keep", "threshold"),
    "toxicity": ("remove_above", "remove_below", "remove_labels"),
    "quality": ("remove_above", "remove_below"),
    "quality_signals": ("remove_above", "remove_below"),
}
SCORED: Final = ("toxicity", "quality", "quality_signals")
# Keys that decide nothing about a document, and those of a source.
WITHOUT_EFFECT: Final = ("name", "output", "cluster", "report")
DESCRIBING: Final = ("license", "attribution", "description")
ONLY_FILTER: Final = "what-if judges the filter's signals alone"
TAKES_TEXT: Final = "which takes the text; filter must run again: corpusmill run RECIPE --set …"
Changes = dict[str, tuple[Any, Any]]


def changes(before: Recipe, after: Recipe) -> Changes:
    """Dotted key -> (value of the run, value asked for), for every key that differs and matters.

    Raises `UserError` for the first that stored signals cannot answer, naming the stage that must run again.
    """
    found: Changes = differences(matters(before), matters(after))
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


def matters(recipe: Recipe) -> dict[str, Any]:
    """A recipe without the keys that decide nothing about a document."""
    config = recipe.model_dump(mode="json")
    return {name: value for name, value in config.items() if name not in WITHOUT_EFFECT}


def _needs(key: str, old: Any, new: Any, after: Recipe) -> tuple[str, str]:
    """(the stage that would have to run again or "", why)."""
    place, *rest = key.split(".")
    if place == "filter":
        why = _text(rest, old, new, after)
        return ("filter" if why else ""), why
    if place == "sources":
        if rest[1:2] and rest[1] in DESCRIBING:
            return "", ""
        return ("dedup" if rest[1:] == ["priority"] else "ingest"), ONLY_FILTER
    return (place if place in STAGES else "every stage"), ONLY_FILTER


def _text(rest: list[str], old: Any, new: Any, after: Recipe) -> str:
    """Why a key of `filter` cannot be answered from signals, or ""."""
    name = rest[0]
    if name in JUDGED:
        return ""
    if name in JUDGED_OF:
        if (
            name == "quality"
            and new is None
            and QUALITY_SCORE in {rule.signal for rule in resolve(after.filter)}
        ):
            return "without it the score of quality_signals would be another, which takes the text"
        if len(rest) > 1:
            known = rest[1] in JUDGED_OF[name]
            return "" if known else "other signals would be measured, which takes the text"
        if old is None:
            return "the run measured no such signal"
        scores = [getattr(after.filter, other) for other in ("quality", "quality_signals")]
        if name == "language" and any(s and (s.remove_above, s.remove_below) != (None, None) for s in scores):
            return "without it the classifiers score texts of all languages, which takes the text"
        return ""
    return "other signals would be measured or other text cut, which takes the text"


@dataclass(frozen=True)
class Finished:
    """A finished run: its recipe, and where the stages that matter here left their files."""

    recipe: Recipe
    filter: Folder
    ledger: Folder
    dedup: Folder | None
    shards: Folder | None
    tokenizer: Folder | None

    def manifest(self, stage: str) -> StageManifest:
        """Raises `UserError` where the stage is not finished."""
        folder: Folder = getattr(self, stage)
        try:
            return StageManifest.model_validate_json((folder / manifest_name(stage)).read())
        except (FileNotFoundError, ValidationError):
            raise UserError(f"{folder}: {stage} is not finished there; run the recipe first") from None


@dataclass(frozen=True)
class Question:
    """What differs, and how both sides judge: checked, nothing read of the partitions yet."""

    run: Finished
    changes: Changes
    before: Side
    after: Side
    partitions: Sequence[str]
    text_bytes: int  # of the documents that the filter saw


def ask(run: Finished, recipe: Recipe) -> Question:
    """`recipe` against `run`; raises `UserError` for what the stored signals cannot answer."""
    if "filter" not in run.recipe.stage_names:
        raise UserError("what-if: the run has no filter stage, so it has no signals to judge")
    manifest = run.manifest("filter")
    if manifest.version != Filter.version:
        raise UserError(
            f"what-if: the run was filtered by version {manifest.version} of the stage, this is {Filter.version}:"
            " its signals may be others; run the recipe again"
        )
    same_stage = run.manifest("ledger").inputs.get("filter") == manifest.key
    if not same_stage or _ran_with(manifest, run) != run.recipe.filter:
        raise UserError(
            f"{run.filter}: the run is not finished: its stages are of different recipes; run it again"
        )
    found = changes(run.recipe, recipe)
    before = Side(stored_rules(manifest), run.recipe.filter)
    asked = Filter(recipe)
    _same_files(manifest, asked)
    after = Side(tuple(asked.rules), recipe.filter)
    found = {key: _in_force(key, pair, before, after) for key, pair in found.items()}
    found |= _moved_in_files(before, after)
    _same_lines(manifest, run.recipe, recipe)
    _scored(before, after, found)
    if before == after:
        raise UserError(
            "what-if: nothing differs from the run; change a rule, such as"
            " --set filter.thresholds.gopher_quality.word_count_min=30"
        )
    if manifest.partitions:
        _measured(run.filter / f"signals/{manifest.partitions[0]}.parquet", after.rules)
    return Question(run, found, before, after, manifest.partitions, manifest.counts.bytes_in)


def _scored(before: Side, after: Side, found: Changes) -> None:
    """Raises `UserError` where other rules than those on scores differ, and the run scored only what they left."""
    from corpusmill.pipeline.filter.apply import of_scores

    def decided_first(side: Side) -> tuple[Any, ...]:
        rules = [rule for rule in side.rules if rule.signal not in of_scores()]
        return rules, side.params.skip_sources, side.params.language

    scores = [getattr(before.params, name) for name in SCORED]
    if before.params.score_removed or not any(scores) or decided_first(before) == decided_first(after):
        return
    key = next(
        (key for key in found if key.split(".")[1:2] != [] and key.split(".")[1] not in SCORED),
        "filter.rules",
    )
    raise UserError(
        f"what-if: {key}: the run scored only documents that the other rules left (filter.score_removed: false), so only"
        f" thresholds of {', '.join(SCORED)} can be judged; filter must run again: corpusmill run RECIPE --set"
        " filter.score_removed=true"
    )


def _ran_with(manifest: StageManifest, run: Finished) -> FilterParams:
    """The parameters in the stage's manifest; there, `rules` are as resolved, and `plugins` the checksums of files."""
    given = {name: value for name, value in manifest.params.items() if name in FilterParams.model_fields}
    recipe = run.recipe.filter
    return FilterParams.model_validate({**given, "rules": recipe.rules, "plugins": recipe.plugins})


def stored_rules(manifest: StageManifest) -> tuple[Rule, ...]:
    """The rules of a run as it resolved them: the files that they stood in may have changed."""
    return tuple(Rule.from_json(entry) for entry in manifest.params["rules"])


def _same_files(manifest: StageManifest, asked: Filter) -> None:
    """Raises `UserError` where lists, models, plugins or Unicode tables changed, though the recipe is the same."""
    now, was = asked.key_params(), manifest.params
    differ = [name for name, hashes in now["lists"].items() if was["lists"].get(name) != hashes]
    models = [name for name, xxh3 in now["models"].items() if was["models"].get(name) != xxh3]
    differ += [f"filter.{name}.model" for name in models]
    names = {"plugins": "filter.plugins", "unicode": "this Python's Unicode"}
    differ += [name for key, name in names.items() if was[key] != now[key]]
    if differ:
        raise UserError(
            f"what-if: {differ[0]}: changed since the run, so other signals would be measured, {TAKES_TEXT}"
        )


def _same_lines(manifest: StageManifest, before: Recipe, after: Recipe) -> None:
    """Raises `UserError` where rules on lines differ: only the text shows what they cut."""
    was: dict[str, list[Any]] = {}
    for entry in manifest.params.get("lines", ()):
        was.setdefault(str(entry["name"]).partition(".")[0], []).append(entry)
    will = {name: [rule.as_json() for rule in rules] for name, rules in line_rules(after.filter).items()}
    differ = [name for name in will if name in was and was[name] != will[name]]
    if after.filter.cut_lines:
        differ += sorted(was.keys() ^ will.keys())
        for source in after.sources:
            differ += [
                name
                for name in will
                if skips(before.filter, source, name) != skips(after.filter, source, name)
            ]
    if differ:
        raise UserError(
            f"what-if: {differ[0]}: its rules on lines would cut other lines than in the run, {TAKES_TEXT}"
        )


def _in_force(key: str, pair: tuple[Any, Any], before: Side, after: Side) -> tuple[Any, Any]:
    """The thresholds in force in place of those given: the published one where a side gives none."""
    name = key.removeprefix("filter.thresholds.")
    if name == key:
        return pair
    old, new = ([rule.threshold for rule in side.rules if rule.name == name] for side in (before, after))
    return (old or [pair[0]])[0], (new or [pair[1]])[0]


def _moved_in_files(before: Side, after: Side) -> Changes:
    """Thresholds that differ though no key of the recipe says so: a file of rules was changed since the run."""
    was = {rule.name: rule for rule in before.rules}
    asked = {**before.params.thresholds, **after.params.thresholds}
    return {
        f"rule {rule.name}": (was[rule.name].threshold, rule.threshold)
        for rule in after.rules
        if rule.name in was
        and rule.name not in asked
        and was[rule.name].threshold != rule.threshold
        and rule.set_name not in MODEL_SETS
    }


def _measured(file: Folder, rules: Sequence[Rule]) -> None:
    """Raises `UserError` for a rule whose signal is in no column."""
    with file.open() as stream:
        there = set(pq.ParquetFile(stream, pre_buffer=False).schema_arrow.names)
    for rule in rules:
        if missing := {*columns_of(rule.signal), *BESIDE} - there:
            raise UserError(
                f"what-if: {rule.name} looks at {sorted(missing)[0]}, which the run did not measure: that takes the text;"
                " filter must run again: corpusmill run RECIPE --set …"
            )


def find_run(url: str) -> Finished:
    """The finished run in a folder, or the output of `corpusmill filter`; raises `UserError` if there is none."""
    recipe, alone = recipe_of(url)
    stages = [*recipe.stage_names, "ledger"]
    places = {name: f"{url.rstrip('/')}/{FOLDERS.get(name, name)}" for name in stages}
    if alone:
        places |= stage_folders([name for name in recipe.stage_names if name != "report"], url)
    folders = {name: Folder(place) for name, place in places.items()}
    return Finished(
        recipe=recipe,
        filter=folders.get("filter", Folder(url)),
        ledger=folders["ledger"],
        dedup=folders.get("dedup"),
        shards=folders.get("shard"),
        tokenizer=folders.get("tokenizer"),
    )
