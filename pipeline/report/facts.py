"""Every figure of the report and of the card as one JSON value (`report.json`), read from published files."""

from __future__ import annotations

from collections import Counter
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from corpusmill.common.errors import WorkError
from corpusmill.pipeline.engine.layout import read_inputs
from corpusmill.pipeline.engine.losses import lost_sources
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.engine.token_rates import TokenRates, token_rates, tokens
from corpusmill.pipeline.report import curves as curve
from corpusmill.pipeline.report import distributions
from corpusmill.pipeline.report.alarms import warnings
from corpusmill.pipeline.report.distributions import Plan, Seen
from corpusmill.pipeline.report.excerpts import examples, hide_addresses
from corpusmill.pipeline.report.planted import judge, load_labels
from corpusmill.pipeline.report.sections import (
    contamination,
    cuts,
    duplicates,
    languages,
    lengths,
    loose_json,
    pii,
    shards,
    tokenizer,
)
from corpusmill.pipeline.report.survey import Places, Rule, Survey, survey
from corpusmill.schemas.manifest import StageManifest, manifest_name
from corpusmill.schemas.recipe import is_local
from corpusmill.schemas.stages import ReportParams
from corpusmill.schemas.tables import KEPT, OUTCOMES, QUARANTINED, REMOVED

CURVES = 12  # rules with a curve, at most
OVERLAP = 12  # rules in the overlap matrix, at most
Facts = dict[str, Any]


def gather(context: Context, params: ReportParams) -> Facts:
    """Survey all partitions and put the figures together. Sections of stages that did not run are None.

    Raises `WorkError` when the ledger and the manifests disagree, `UserError` for a bad label file.
    """
    labels = load_labels(params.labels) if params.labels else None
    manifests = {
        name: StageManifest.model_validate_json((folder / manifest_name(name)).read())
        for name, folder in context.previous.items()
    }
    local = [name for name in manifests if is_local(name)]
    places = Places(
        context.previous.get("ledger", context.run / "ledger"),
        context.previous[local[0]],
        context.previous[local[-1]],
        context.previous.get("filter"),
    )
    partitions = manifests[local[0]].partitions
    flow = {name: manifests[name] for name in local}
    losses = lost_sources(context.recipe, flow, places.ledger, command=False)
    rates = token_rates(context.previous.get("shard"), context.previous.get("tokenizer"))
    found = Survey()
    for part in context.scheduler.map(partial(survey, places, params.samples), partitions, "report"):
        found.add(part, params.samples)
    _check(found, manifests[local[0]], manifests[local[-1]])
    seen, wanted = _second_pass(context, places, manifests.get("filter"), partitions, found, rates, params)
    hide_addresses(context, [*found.picks.values(), *seen.nearest.values(), found.pairs, found.typical])
    shard_set = shards(context.previous.get("shard"))
    facts: Facts = {
        "kind": "corpusmill-report-v1",
        "name": context.recipe.name,
        "totals": {},
        "alarms": [loss.model_dump() for loss in losses],
        "warnings": warnings(context.recipe, flow, found, losses),
        "flow": [_step(manifests[name], found) for name in local],
        "sources": _sources(context, found, manifests[local[0]], shard_set),
        "rules": _rules(found, rates),
        "overlap": _overlap(found),
        "cuts": cuts(found),
        "curves": _curves(seen, wanted),
        "distributions": distributions.section(
            seen, wanted, _filter_rules(manifests.get("filter")), found.failures.failed
        ),
        "tokens_measured_on": rates.measured if rates else None,
        "duplicates": duplicates(context.previous.get("dedup"), manifests.get("dedup"), found),
        "contamination": contamination(context.previous.get("decontaminate")),
        "pii": pii(manifests.get("redact"), found),
        "languages": languages(found),
        "lengths": lengths(found),
        "quarantine": _quarantine(found),
        "split": loose_json(context.previous.get("split"), "split.json"),
        "similarity": loose_json(context.previous.get("split"), "similarity.json"),
        "tokenizer": tokenizer(context.previous.get("tokenizer"), manifests.get("tokenizer")),
        "shards": shard_set,
        "planted": None,
        "counters": {name: manifest.counters for name, manifest in manifests.items()},
        "reproduce": _reproduce(context, manifests),
    }
    if "augment" in manifests:
        facts["augmented"] = loose_json(context.previous["augment"], "augment.json")
    if labels is not None:
        similarity = context.recipe.dedup.similarity if "dedup" in manifests else None
        facts["planted"] = judge(
            labels, context.scheduler, places.ledger, places.ingested, partitions, similarity
        )
    facts["totals"] = _totals(facts, found, manifests[local[0]])
    facts["samples"] = examples(context, places, partitions, found, seen, wanted, params)
    order = {(rule["stage"], rule["rule"]): place for place, rule in enumerate(facts["rules"])}
    facts["samples"]["removed"].sort(key=lambda sample: order[sample["stage"], sample["rule"]])
    return facts


def _check(found: Survey, ingest: StageManifest, last: StageManifest) -> None:
    """The ledger must hold every record once, and as many kept ones as there are documents."""
    records = sum(found.outcomes.values())
    kept = sum(count for (_, outcome), count in found.outcomes.items() if outcome == KEPT)
    for what, listed, counted in (
        ("records", records, ingest.counts.docs_in),
        ("kept documents", kept, last.counts.kept),
    ):
        if listed != counted:
            raise WorkError(
                f"ledger: {listed} {what}, but the manifests count {counted}; run `corpusmill verify`"
            )


def _step(manifest: StageManifest, found: Survey) -> Facts:
    counts = manifest.counts
    why: Counter[str] = Counter()
    for (rule, _, _), count in found.first.items():
        if rule.stage == manifest.stage:
            why[rule.rule] += count
    return {
        "stage": manifest.stage,
        **counts.model_dump(),
        "why": [
            {"rule": rule, "documents": n} for rule, n in sorted(why.items(), key=lambda e: (-e[1], e[0]))
        ],
    }


def _sources(context: Context, found: Survey, ingest: StageManifest, shard_set: Facts | None) -> list[Facts]:
    rows = []
    for name in sorted({*context.recipe.sources, *(source for source, _ in found.outcomes)}):
        of = {outcome: found.outcomes[name, outcome] for outcome in OUTCOMES}
        stages: Counter[str] = Counter()
        for (rule, outcome, source), count in found.first.items():
            if source == name and outcome == REMOVED:
                stages[rule.stage] += count
        declared = context.recipe.sources.get(name)
        tokens = [s["ntokens"] for s in shard_set["sets"] if s["source"] == name] if shard_set else None
        raw = ingest.per_source.get(name)
        rows.append(
            {
                "source": name,
                "records": sum(of.values()),
                **of,
                "removed_by_stage": dict(sorted(stages.items())),
                "raw_bytes": raw.bytes_in if raw else None,
                "text_bytes": sum(found.text_bytes[name, outcome] for outcome in OUTCOMES),
                "kept_bytes": found.text_bytes[name, KEPT],
                "tokens": None if tokens is None else sum(tokens),
                "pii_spans": sum(
                    n for (st, source, _), n in found.edits.items() if (st, source) == ("redact", name)
                ),
                "license": declared.license if declared else None,
                "attribution": declared.attribution if declared else None,
                "description": declared.description if declared else None,
            }
        )
    return rows


def _rules(found: Survey, rates: TokenRates | None) -> list[Facts]:
    """Rules that removed something, those that removed most first. `alone`: failed no other rule of the stage;
    bytes are of text as ingested, tokens these by the rate of each source."""
    first: Counter[Rule] = Counter()
    sources: dict[Rule, Counter[str]] = {}
    for (rule, outcome, source), count in found.first.items():
        if outcome == REMOVED:
            first[rule] += count
            sources.setdefault(rule, Counter())[source] += count
    failures = found.failures
    text: Counter[tuple[Rule, str]] = Counter()
    products: Counter[tuple[Rule, str]] = Counter()
    for (rule, what, source), size in failures.text.items():
        text[rule, what] += size
        products[rule, what] += size * rates.rate(source) if rates else 0
    return [
        {
            "stage": rule.stage,
            "rule": rule.rule,
            "first": first[rule],
            "failed": failures.failed[rule],
            "alone": failures.alone[rule],
            "bytes": {what: text[rule, what] for what in ("first", "failed", "alone")},
            "tokens": {what: tokens(products[rule, what]) for what in ("first", "failed", "alone")}
            if rates
            else None,
            "sources": dict(sorted(sources.get(rule, {}).items())),
        }
        for rule in sorted(failures.failed, key=lambda r: (-first[r], -failures.failed[r], r))
    ]


def _overlap(found: Survey) -> Facts | None:
    """Documents that failed two rules at once, for the rules of stages that judge several."""
    failed = found.failures.failed
    judging = {rule.stage for pair in found.failures.overlap for rule in pair}
    rules = sorted((r for r in failed if r.stage in judging), key=lambda r: (-failed[r], r))[:OVERLAP]
    if len(rules) < 2:
        return None
    counts = [
        [failed[a] if a == b else found.failures.overlap[min(a, b), max(a, b)] for b in rules] for a in rules
    ]
    return {"rules": [rule.rule for rule in rules], "counts": counts}


def _filter_rules(manifest: StageManifest | None) -> list[Facts]:
    rules = manifest.params.get("rules") or () if manifest else ()
    return [rule for rule in rules if isinstance(rule, dict)]


def _second_pass(
    context: Context, places: Places, manifest: StageManifest | None, partitions: list[str], found: Survey,
    rates: TokenRates | None, params: ReportParams,
) -> tuple[Seen, Plan]:  # fmt: skip
    """What is counted once the first pass knows the range of every signal; without a filter nothing is."""
    curves = curve.plan(manifest.params, "filter", found.failures) if manifest else []
    drawn = min(CURVES, len(curves))
    wanted = distributions.plan(
        _filter_rules(manifest), found.failures.spread, curves, drawn, params.samples, rates
    )
    return distributions.look(context.scheduler, places, wanted, partitions if wanted.bins else []), wanted


def _curves(seen: Seen, wanted: Plan) -> list[Facts]:
    """Each with the sums of `curves.MEASURES`: `of` all documents judged, `failed` and `marginal` by threshold."""
    whole, total = seen.sums
    return [
        {
            "rule": one.rule.rule,
            "signal": one.signal,
            "comparison": one.comparison,
            "threshold": one.threshold,
            "log": one.log,
            "grid": list(one.grid),
            **{
                name: _measure(name, whole[i], sums[:, 0, i].tolist(), sums[:, 1, i].tolist())
                if wanted.rates or name != "tokens"
                else None
                for i, name in enumerate(curve.MEASURES)
            },
        }
        for one, sums in zip(wanted.curves[: wanted.drawn], total, strict=True)
    ]


def _measure(name: str, whole: int, failed: list[int], marginal: list[int]) -> Facts:
    amount = tokens if name == "tokens" else int
    return {
        "of": amount(whole), "failed": [amount(n) for n in failed], "marginal": [amount(n) for n in marginal],
    }  # fmt: skip


def _quarantine(found: Survey) -> list[Facts]:
    rows: Counter[Rule] = Counter()
    for (rule, outcome, _), count in found.first.items():
        if outcome == QUARANTINED:
            rows[rule] += count
    return [
        {
            "stage": rule.stage,
            "rule": rule.rule,
            "records": count,
            "examples": [
                {
                    "doc_id": row["doc_id"].hex(),
                    **{name: row[name] for name in ("source", "locator", "detail")},
                }
                for row in found.picks.get((QUARANTINED, rule.stage, rule.rule), [])
            ],
        }
        for rule, count in sorted(rows.items(), key=lambda entry: (-entry[1], entry[0]))
    ]


def _totals(facts: Facts, found: Survey, ingest: StageManifest) -> Facts:
    of = {
        outcome: sum(found.outcomes[s["source"], outcome] for s in facts["sources"]) for outcome in OUTCOMES
    }
    sets = facts["shards"]["sets"] if facts["shards"] else None
    copies = facts["duplicates"]
    return {
        "records": sum(of.values()),
        **of,
        "raw_bytes": ingest.counts.bytes_in,
        "text_bytes": sum(found.text_bytes.values()),
        "kept_bytes": facts["flow"][-1]["bytes_kept"],
        "tokens": None if sets is None else sum(s["ntokens"] for s in sets),
        "train_tokens": None if sets is None else sum(s["ntokens"] for s in sets if s["split"] == "train"),
        "duplicates": copies["removed"] if copies else None,
        "pii_spans": facts["pii"]["spans"] if facts["pii"] else None,
        "sources": len(facts["sources"]),
    }


def _reproduce(context: Context, manifests: dict[str, StageManifest]) -> Facts:
    try:
        release = version("corpusmill")
    except PackageNotFoundError:
        release = "uninstalled"
    revisions = read_inputs(context.run).revisions
    return {
        "corpusmill": release,
        "recipe": context.recipe.model_dump(
            mode="json", exclude={"cluster", "output"}, exclude_defaults=True
        ),
        "stages": [{"stage": n, "version": m.version, "key": m.key} for n, m in manifests.items()],
        **({"revisions": revisions} if revisions else {}),
    }
