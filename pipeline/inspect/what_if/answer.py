"""The answer of `what-if`: a finished run, the recipe asked for, every partition compared, the counts put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from pydantic import ValidationError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.engine.token_rates import TokenRates, token_rates
from corpusmill.pipeline.filter.rules.rule_files import Rule
from corpusmill.pipeline.filter.rules.sets import MODEL_SETS, line_rules, skips
from corpusmill.pipeline.filter.stage import Filter
from corpusmill.pipeline.inspect.what_if.changes import Changes, changes
from corpusmill.pipeline.inspect.what_if.compare import BACK, BESIDE, GONE, Compare, Side, Tally
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.ledger import KEPT
from corpusmill.schemas.manifest import StageManifest, manifest_name
from corpusmill.schemas.recipe import Recipe

Answer = dict[str, Any]


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
    if (
        run.manifest("ledger").inputs.get("filter") != manifest.key
        or _ran_with(manifest, run) != run.recipe.filter
    ):
        raise UserError(
            f"{run.filter}: the run is not finished: its stages are of different recipes; run it again"
        )
    found = changes(run.recipe, recipe)
    before = Side(stored_rules(manifest), run.recipe.filter)
    asked = Filter(recipe)
    _same_files(manifest, asked)
    after = Side(tuple(asked.rules), recipe.filter)
    found = {key: _in_force(key, pair, before, after) for key, pair in found.items()} | _moved_in_files(
        before, after
    )
    _same_lines(manifest, run.recipe, recipe)
    if before == after:
        raise UserError(
            "what-if: nothing differs from the run; change a rule, such as"
            " --set filter.thresholds.gopher_quality.word_count_min=30"
        )
    if manifest.partitions:
        _measured(run.filter / f"signals/{manifest.partitions[0]}.parquet", after.rules)
    return Question(run, found, before, after, manifest.partitions, manifest.counts.bytes_in)


def _ran_with(manifest: StageManifest, run: Finished) -> FilterParams:
    """The parameters in the stage's manifest; there, `rules` are as resolved, and `plugins` the checksums of files."""
    given = {name: value for name, value in manifest.params.items() if name in FilterParams.model_fields}
    recipe = run.recipe.filter
    return FilterParams.model_validate({**given, "rules": recipe.rules, "plugins": recipe.plugins})


def stored_rules(manifest: StageManifest) -> tuple[Rule, ...]:
    """The rules of a run as it resolved them: the files that they stood in may have changed."""
    return tuple(Rule(**{**entry, "among": tuple(entry["among"])}) for entry in manifest.params["rules"])


def _same_files(manifest: StageManifest, asked: Filter) -> None:
    """Raises `UserError` where what signals are measured by is no more what it was, though the recipe says the same."""
    now = asked.key_params()
    differ = [
        *(name for name, hashes in now["lists"].items() if manifest.params["lists"].get(name) != hashes),
        *(
            f"filter.{name}.model"
            for name, xxh3 in now["models"].items()
            if manifest.params["models"].get(name) != xxh3
        ),
        *(["filter.plugins"] if manifest.params["plugins"] != now["plugins"] else []),
        *(["this Python's Unicode"] if manifest.params["unicode"] != now["unicode"] else []),
    ]
    if differ:
        raise UserError(
            f"what-if: {differ[0]}: changed since the run, so other signals would be measured, which takes the text;"
            " filter must run again: corpusmill run RECIPE --set …"
        )


def _same_lines(manifest: StageManifest, before: Recipe, after: Recipe) -> None:
    """Raises `UserError` where rules on lines differ: what they cut, and how much, takes the text to say."""
    cutting = after.filter.cut_lines
    was: dict[str, list[Any]] = {}
    for entry in manifest.params.get("lines", ()):
        was.setdefault(str(entry["name"]).partition(".")[0], []).append(entry)
    will = {name: [rule.as_json() for rule in rules] for name, rules in line_rules(after.filter).items()}
    differ = [name for name in will if name in was and was[name] != will[name]]
    if cutting:
        differ += sorted(was.keys() ^ will.keys())
        for source in after.sources:
            differ += [
                name
                for name in will
                if skips(before.filter, source, name) != skips(after.filter, source, name)
            ]
    if differ:
        raise UserError(
            f"what-if: {differ[0]}: its rules on lines would cut other lines than in the run, which takes the text;"
            " filter must run again: corpusmill run RECIPE --set …"
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
        if missing := {rule.signal, *BESIDE} - there:
            raise UserError(
                f"what-if: {rule.name} looks at {sorted(missing)[0]}, which the run did not measure: that takes the text;"
                " filter must run again: corpusmill run RECIPE --set …"
            )


def answer(question: Question, scheduler: Scheduler, examples: int = 5) -> Answer:
    """Judge every partition on both sides; the answer as JSON. Raises `WorkError` where files disagree."""
    run = question.run
    ledger = run.manifest("ledger")
    checksums = {file.path: file.xxh3 for file in ledger.files}
    stages = run.recipe.stage_names
    later = stages[stages.index("filter") + 1 :]
    deduped = run.dedup if "dedup" in later else None
    compare = Compare(run.filter, run.ledger, checksums, question.before, question.after, deduped, examples)
    tally = Tally(examples={BACK: [], GONE: []})
    for part in scheduler.map(compare, question.partitions, "what-if"):
        tally.add(part, examples)
    counts, manifest = _sums(tally.documents), run.manifest("filter")
    if (counts["in"], counts["before"]) != (manifest.counts.docs_in, manifest.counts.kept):
        raise WorkError(f"{run.filter}: files and manifest disagree; run `corpusmill verify`")
    rates = token_rates(run.shards, run.tokenizer)
    sources = sorted({source for source, _ in tally.documents})
    rows = [_row(tally, source, rates) for source in sources]
    total = {key: _total([row[key] for row in rows]) for key in (rows[0] if rows else ()) if key != "source"}
    return {
        "kind": "corpusmill-what-if-v1",
        "stage": "filter",
        "changes": {key: {"run": old, "asked": new} for key, (old, new) in question.changes.items()},
        "tokens": _said(rates),
        "total": total,
        "sources": rows,
        "rules": _rules(tally, [rule.name for rule in (*question.before.rules, *question.after.rules)]),
        "back": {**_moved(tally, BACK), "examples": tally.examples[BACK]},
        "gone": {
            **_moved(tally, GONE),
            "kept_in_the_end": tally.ends[KEPT, ""],
            "with_copies": tally.survivors,
            "ended": [
                {"outcome": outcome, "stage": stage, "documents": n}
                for (outcome, stage), n in sorted(tally.ends.items())
                if outcome != KEPT
            ],
            "examples": tally.examples[GONE],
        },
        "later_stages": later,
    }


def _sums(counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    found = dict.fromkeys(("in", "before", "after", BACK, GONE), 0)
    for (_, what), number in counts.items():
        found[what] += number
    return found


def _row(tally: Tally, source: str, rates: TokenRates | None) -> Answer:
    """One source: documents in, and on both sides documents, bytes of text as ingested, tokens."""
    row: Answer = {"source": source, "documents_in": tally.documents[source, "in"]}
    for side in ("before", "after"):
        size = tally.text[source, side]
        row[side] = {
            "documents": tally.documents[source, side],
            "text_bytes": size,
            "tokens": None if rates is None else rates.estimate(source, size),
        }
    row["back"], row["gone"] = tally.documents[source, BACK], tally.documents[source, GONE]
    return row


def _total(values: Sequence[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _total([value[name] for value in values]) for name in values[0]}
    return None if values[0] is None else sum(values)


def _said(rates: TokenRates | None) -> Answer | None:
    if rates is None:
        return None
    known = "every document kept in the end" if rates.measured == "shards" else "the tokenizer stage's sample"
    return {
        "how": f"bytes of text times each source's tokens per byte, measured on {known}",
        "measured_on": rates.measured,
        "kept_in_the_end": sum(rates.exact.values()) if rates.exact else None,
    }


def _rules(tally: Tally, names: Sequence[str]) -> list[Answer]:
    """Rules whose counts differ, in the order of judging: documents removed first, failed, removed by it alone."""
    rows = []
    for name in dict.fromkeys(names):
        sides = [
            {
                said: tally.rules[side, name, what]
                for said, what in (("first", "first"), ("failed", "failed"), ("alone", "only"))
            }
            for side in ("before", "after")
        ]
        if sides[0] != sides[1]:
            rows.append({"rule": name, "before": sides[0], "after": sides[1]})
    return rows


def _moved(tally: Tally, kind: str) -> Answer:
    return {"documents": _sums(tally.documents)[kind], "text_bytes": _sums(tally.text)[kind]}
