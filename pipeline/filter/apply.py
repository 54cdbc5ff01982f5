"""The pure function of the stage: a table of documents to an `Outcome`, in memory bounded by `VIEW_BYTES`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.costs import METER
from corpusmill.common.errors import UserError, nearest
from corpusmill.common.task_progress import advance
from corpusmill.pipeline.engine.stage import Outcome
from corpusmill.pipeline.filter.classifiers import fasttext_model, scores
from corpusmill.pipeline.filter.lists.url_lists import UrlRules
from corpusmill.pipeline.filter.lists.word_lists import WordLists
from corpusmill.pipeline.filter.plugins import load as load_plugins
from corpusmill.pipeline.filter.quality_signals.scores import SPECS as OVER_SIGNALS
from corpusmill.pipeline.filter.quality_signals.scores import SignalScores
from corpusmill.pipeline.filter.rules.judge import exemptions, failed_by, in_order, judge
from corpusmill.pipeline.filter.rules.line_matches import counters as cut_counters
from corpusmill.pipeline.filter.rules.line_matches import cut
from corpusmill.pipeline.filter.rules.line_signals import LineRules
from corpusmill.pipeline.filter.rules.rule_files import Rule
from corpusmill.pipeline.filter.rules.sets import line_rules
from corpusmill.pipeline.filter.signals.catalogue import measure, text_specs
from corpusmill.pipeline.filter.text.view import spans, text_buffers, view_of
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.tables import ARROW_TYPES, SignalSpec, signals_schema


def of_scores() -> frozenset[str]:
    """The signals that `filter.score_removed: false` leaves out of removed documents."""
    return frozenset(
        spec.name for spec in (*scores.SPECS, *OVER_SIGNALS) if not spec.name.startswith("language.")
    )


def signals_of_text(text: pa.LargeStringArray, asked: Collection[str] = ()) -> dict[str, pa.Array]:
    """The text signals of one batch, as columns of their specs' types."""
    return _columns(measure(view_of(*text_buffers(text)), asked), text_specs(asked))


def known_signals(rules: Sequence[Rule], specs: Sequence[SignalSpec]) -> None:
    """Raises `UserError` for a rule that looks at a signal which is not measured, and for one measured twice."""
    names = [spec.name for spec in specs]
    for name, times in Counter(names).items():
        if times > 1:
            raise UserError(
                f"filter: the signal '{name}' would be measured twice: two of the recipe's rule sets, lists of words and"
                " plugins have the same name ('@' is '_' in a signal's); give one of them another"
            )
    for rule in rules:
        if rule.signal not in names:
            raise UserError(
                f"rule {rule.name}: signal: '{rule.signal}' is not measured{nearest(rule.signal, names)}"
                " (corpusmill signals --list shows them)"
            )


def _columns(values: Mapping[str, npt.NDArray[Any]], specs: Sequence[SignalSpec]) -> dict[str, pa.Array]:
    return {spec.name: pa.array(values[spec.name]).cast(ARROW_TYPES[spec.dtype]) for spec in specs}


class Filtering:
    """Callable: documents to `Outcome`. Holds the loaded models and the resolved rules."""

    def __init__(
        self, params: FilterParams, rules: Sequence[Rule], models: Mapping[str, fasttext_model.ModelFile]
    ) -> None:
        self.params = params
        self.rules = rules
        self.asked = frozenset(rule.signal for rule in rules)
        self.lines = LineRules(line_rules(params), params.cut_lines)
        self.plugins = load_plugins(params.plugins)
        self.words, self.urls = WordLists(params.word_lists), UrlRules(params.urls)
        self.given = [*self.lines.specs, *self.words.specs]
        self.specs = [
            *text_specs(self.asked, self.plugins), *self.given, *self.urls.specs, *scores.specs(params, self.asked),
        ]  # fmt: skip
        self.over_signals = SignalScores(params, models, self.specs)
        self.specs += OVER_SIGNALS
        known_signals(rules, self.specs)
        self.models = scores.ModelSignals(params, models, self.asked)
        self.before_scores = [rule for rule in rules if rule.signal not in of_scores()]

    def __call__(self, docs: pa.Table) -> Outcome:
        signals, cuts = self._measured(docs)
        kept, decisions, counters = judge(docs, signals, self.rules, self.params)
        if self.models.language is not None:
            column = docs.schema.get_field_index("language")
            docs = docs.set_column(column, docs.schema.field(column), signals["language.code"])
        left = docs.filter(pa.array(kept))
        if len(cuts):
            cuts = cuts[kept[cuts[:, 0]]]
            cuts[:, 0] = (np.cumsum(kept) - 1)[cuts[:, 0]]  # rows of `left`
            left, edited = cut(left, cuts, self.lines.names)
            decisions = in_order(docs, decisions, edited)
            counters.update(cut_counters(cuts, self.lines.names))
        return Outcome(left, decisions, signals, counters)

    def signals(self, docs: pa.Table) -> pa.Table:
        """Every signal of every document, as `signals_schema(self.specs)`."""
        return self._measured(docs)[0]

    def _to_score(self, sources: pa.Array, columns: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
        """bool[D]: documents that the classifiers score: all, or those that no rule removes on the signals measured before."""
        if self.params.score_removed:
            return np.ones(len(sources), np.bool_)
        failed = failed_by(sources, pa.table(dict(columns)), self.before_scores, self.params)
        return np.asarray(~failed.any(axis=0))

    def _measured(self, docs: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """(signals, spans that line rules cut: row in `docs`, first byte, end, rule; see `LineRules.measure`)."""
        schema = signals_schema(self.specs)
        # Those over the others are worked out of all documents at once.
        over = {spec.name for spec in OVER_SIGNALS}
        first_schema = pa.schema([field for field in schema if field.name not in over])
        tables, scored, cuts, row = [], [], [np.empty((0, 4), np.int64)], 0
        for chunk in docs.select(["doc_id", "source", "url", "text"]).to_batches():
            for first, last in spans(chunk["text"]):
                part = chunk.slice(first, last - first)
                columns: dict[str, Any] = {"doc_id": part["doc_id"]}
                with METER.phase("signals of texts"):
                    view = view_of(*text_buffers(part["text"]))
                    measured = measure(view, self.asked, self.plugins)
                    columns |= _columns(measured, text_specs(self.asked, self.plugins))
                with METER.phase("rules on lines, lists"):
                    values, found = self.lines.measure(
                        view, exemptions(part["source"], self.lines.sets, self.params)
                    )
                    columns |= _columns({**values, **self.words.measure(view)}, self.given)
                    columns |= self.urls.measure(part["url"])
                columns |= self.models.languages(part["text"])
                wanted = self._to_score(part["source"], columns)
                columns |= self.models.scores(part["text"], columns, wanted)
                scored.append(wanted)
                tables.append(
                    pa.Table.from_arrays([columns[name] for name in first_schema.names], schema=first_schema)
                )
                found[:, 0] += row
                cuts.append(found)
                row += len(part)
                advance(view.offsets[-1] - view.offsets[0])
        if not tables:
            return schema.empty_table(), cuts[0]
        signals = pa.concat_tables(tables).combine_chunks()
        columns = {name: signals[name].chunk(0) for name in signals.column_names}
        columns |= self.over_signals.columns(columns, np.concatenate(scored))
        signals = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        return signals, np.concatenate(cuts)
