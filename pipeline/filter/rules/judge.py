"""Rules judged on columns of signals: one comparison per rule and batch, and the decisions that follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.filter.classifiers.scores import iso_639_1
from corpusmill.pipeline.filter.rules.rule_files import COMPARED, Rule
from corpusmill.pipeline.filter.rules.sets import skips
from corpusmill.schemas.filter import KNOWN_WORDS, TRUSTED, FilterParams, LanguageParams
from corpusmill.schemas.tables import DECISIONS, FAILED_RULE, REMOVED

STAGE = "filter"


def failures(rule: Rule, signals: pa.Table) -> npt.NDArray[np.bool_]:
    """bool[D]: which documents fail a rule. A value that was not measured (null) fails nothing.

    Both sides are compared as the column stores them, so that a judgement can be repeated from the file
    alone.
    """
    column = signals[rule.signal]
    if rule.comparison == "among":
        # No language at all is none of those to keep.
        return np.asarray(pc.invert(pc.is_in(column, value_set=pa.array(rule.among, pa.string()))))
    values, measured = _values(column)
    assert rule.threshold is not None
    limit = np.float32(rule.threshold) if pa.types.is_float32(column.type) else np.float64(rule.threshold)
    return np.asarray(~COMPARED[rule.comparison](values, limit) & measured & _trusted(rule.signal, signals))


def columns_of(signal: str) -> tuple[str, ...]:
    """The signals that a rule on one looks at."""
    return (signal, KNOWN_WORDS) if signal.startswith("toxicity.") and signal != KNOWN_WORDS else (signal,)


def _trusted(signal: str, signals: pa.Table) -> npt.NDArray[np.bool_] | np.bool_:
    """bool[D]: where rules on a signal are judged: those on toxicity only where the model knows enough of the words."""
    if columns_of(signal) == (signal,):
        return np.True_
    return np.asarray(
        pc.fill_null(pc.greater_equal(signals[KNOWN_WORDS], pa.scalar(TRUSTED, pa.float32())), True)
    )


def judge(
    docs: pa.Table, signals: pa.Table, rules: Sequence[Rule], params: FilterParams
) -> tuple[npt.NDArray[np.bool_], pa.Table, dict[str, int]]:
    """(bool[D] kept, one `DECISIONS` row per removed document in order, counters).

    The deciding rule is the first of `rules` that failed; `failed` lists all of them in that order. Counters:
    `rule/<name>/first`, `rule/<name>/failed` and `rule/<name>/only` (failed by no other rule), in documents.
    """
    failed = failed_by(docs["source"], signals, rules, params)
    how_many = failed.sum(axis=0)
    removed = np.flatnonzero(how_many)
    first = failed[:, removed].argmax(axis=0) if len(rules) else np.zeros(0, np.int64)
    counters = {}
    for row, rule in enumerate(rules):
        counts = {"first": first == row, "failed": failed[row], "only": failed[row] & (how_many == 1)}
        counters.update(
            {f"rule/{rule.name}/{what}": int(rows.sum()) for what, rows in counts.items() if rows.any()}
        )
    return how_many == 0, _decisions(docs, signals, rules, failed, removed, first), counters


def failed_by(
    sources: pa.ChunkedArray | pa.Array, signals: pa.Table, rules: Sequence[Rule], params: FilterParams
) -> npt.NDArray[np.bool_]:
    """bool[R, D]: which rule removes which document, those that its source skips and its language leave out."""
    failed = np.zeros((len(rules), len(sources)), np.bool_)
    exempt = exemptions(sources, {rule.set_name for rule in rules}, params)
    for row, rule in enumerate(rules):
        failed[row] = failures(rule, signals) & ~exempt.get(rule.set_name, np.False_)
        if others := wanted_beside(rule.languages, params.language):
            failed[row] &= ~_in_language(signals, others)
    return failed


def wanted_beside(languages: Iterable[str], params: LanguageParams | None) -> frozenset[str]:
    """The languages to keep that a rule is not made for: it is not judged on documents in them."""
    keep = params.keep if params is not None else None
    return frozenset(code for code in keep or () if languages and iso_639_1(code) not in languages)


def _in_language(signals: pa.Table, languages: Iterable[str]) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_in(signals["language.code"], value_set=pa.array(sorted(languages), pa.string())))


def _in_another(codes: pa.ChunkedArray, languages: Sequence[str]) -> npt.NDArray[np.bool_]:
    """bool[D]: whether the language is known, and none of these."""
    others = [code for code in codes.unique().to_pylist() if code and iso_639_1(code) not in languages]
    return np.asarray(pc.is_in(codes, value_set=pa.array(others, pa.string())))


def _values(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
    """(values with 0 for null, whether each was measured)."""
    measured = np.asarray(column.is_valid())
    return np.asarray(pc.fill_null(column, pa.scalar(0, column.type))), measured


def exemptions(
    sources: pa.ChunkedArray | pa.Array, set_names: Iterable[str], params: FilterParams
) -> dict[str, npt.NDArray[np.bool_]]:
    """rule set -> bool[D]: documents whose source skips it; sets that none skips are left out."""
    exempt = {}
    here = {source: np.asarray(pc.equal(sources, source)) for source in params.skip_sources}
    for name in set_names:
        masks = [mask for source, mask in here.items() if skips(params, source, name)]
        if masks:
            exempt[name] = np.logical_or.reduce(masks)
    return exempt


def in_order(docs: pa.Table, *decisions: pa.Table) -> pa.Table:
    """Decisions on different documents as one table, in the order of `docs`."""
    together = pa.concat_tables(decisions)
    return together.take(pc.sort_indices(pc.index_in(together["doc_id"], value_set=docs["doc_id"])))


def _measured(rule: Rule, signals: pa.Table) -> npt.NDArray[np.float64]:
    """float64[D]: what the ledger shows beside the rule: for the language, how sure the model is of it."""
    name = "language.score" if rule.comparison == "among" else rule.signal
    return _values(signals[name])[0].astype(np.float64)


def _decisions(
    docs: pa.Table, signals: pa.Table, rules: Sequence[Rule],
    failed: npt.NDArray[np.bool_], removed: npt.NDArray[np.int64], first: npt.NDArray[np.int64],
) -> pa.Table:  # fmt: skip
    if len(removed) == 0:
        return DECISIONS.empty_table()
    names = pa.array([rule.name for rule in rules], pa.string())
    limits = pa.array([rule.threshold for rule in rules], pa.float64())
    values = np.stack([_measured(rule, signals)[removed] for rule in rules], axis=1)
    which = failed[:, removed].T  # [removed, rules], so that flat order is by document, then by rule
    flat = np.tile(np.arange(len(rules)), (len(removed), 1))[which]
    offsets = np.concatenate([[0], np.cumsum(which.sum(axis=1))]).astype(np.int32)
    stages, rows = pa.array([STAGE] * len(flat), pa.string()), pa.array(flat)
    entries = pa.StructArray.from_arrays(
        [stages, names.take(rows), pa.array(values[which]), limits.take(rows)], fields=list(FAILED_RULE)
    )
    language = signals["language.code"].take(pa.array(removed))
    by_language = pa.array(np.array([rule.comparison == "among" for rule in rules])[first])
    labels = pc.binary_join_element_wise("language", pc.fill_null(language, "unknown"), " ")
    details = pc.if_else(by_language, labels, pa.scalar(None, pa.string()))
    for row, rule in enumerate(rules):
        if rule.languages:
            foreign = pa.array((first == row) & _in_another(language, rule.languages))
            made_for = f"made for {', '.join(rule.languages)}"
            details = pc.if_else(foreign, pc.binary_join_element_wise(made_for, labels, "; "), details)
    columns = {
        "doc_id": docs["doc_id"].take(pa.array(removed)),
        "outcome": pa.array([REMOVED] * len(removed), pa.string()),
        "stage": pa.array([STAGE] * len(removed), pa.string()),
        "rule": names.take(pa.array(first)),
        "value": pa.array(values[np.arange(len(removed)), first]),
        "threshold": limits.take(pa.array(first)),
        "detail": details,
        "failed": pa.ListArray.from_arrays(pa.array(offsets), entries),
    }
    return pa.Table.from_arrays(
        [columns[f.name] if f.name in columns else pa.nulls(len(removed), f.type) for f in DECISIONS],
        schema=DECISIONS,
    )
