"""The pure function of the stage: a table of documents to an `Outcome`, in memory bounded by `VIEW_BYTES`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.filter.classifiers import fasttext_model, scores
from pipeline.filter.rules.judge import judge
from pipeline.filter.rules.sets import Rule
from pipeline.filter.signals.catalogue import measure, text_specs
from pipeline.filter.text.view import spans, text_buffers, view_of
from pipeline.transform import Outcome
from schemas.errors import UserError, nearest
from schemas.filter import FilterParams
from schemas.signals import ARROW_TYPES, SignalSpec, signals_schema


def all_specs(asked: Collection[str] = ()) -> list[SignalSpec]:
    """The signals of the stage, in the order of the columns of its signals partitions; of those measured on
    demand the ones `asked` for."""
    return [*text_specs(asked), *scores.SPECS]


def signals_of_text(text: pa.LargeStringArray, asked: Collection[str] = ()) -> dict[str, pa.Array]:
    """The text signals of one batch, as columns of their specs' types."""
    values = measure(view_of(*text_buffers(text)), asked)
    specs = text_specs(asked)
    return {spec.name: pa.array(values[spec.name]).cast(ARROW_TYPES[spec.dtype]) for spec in specs}


class Filtering:
    """Callable: documents to `Outcome`. Holds the loaded models and the resolved rules."""

    def __init__(
        self, params: FilterParams, rules: Sequence[Rule], models: Mapping[str, fasttext_model.ModelFile]
    ) -> None:
        self.params = params
        self.rules = rules
        self.asked = frozenset(rule.signal for rule in rules)
        self.models: dict[str, Any] = {}
        self.labels: dict[str, str] = {}
        self.languages: dict[str, tuple[str, ...]] = {}
        for name, file in models.items():
            self.models[name] = fasttext_model.load(file.path, file.xxh3)
            if name != "language":
                self.labels[name] = self._label(name, file)
                self.languages[name] = file.languages

    def __call__(self, docs: pa.Table) -> Outcome:
        signals = self.signals(docs)
        kept, decisions, counters = judge(docs, signals, self.rules, self.params)
        if "language" in self.models:
            column = docs.schema.get_field_index("language")
            docs = docs.set_column(column, docs.schema.field(column), signals["language.code"])
        return Outcome(docs.filter(pa.array(kept)), decisions, signals, counters)

    def signals(self, docs: pa.Table) -> pa.Table:
        """Every signal of every document, as `signals_schema(all_specs())`."""
        schema = signals_schema(all_specs(self.asked))
        tables = []
        for chunk in docs.select(["doc_id", "text"]).to_batches():
            for first, last in spans(chunk["text"]):
                part = chunk.slice(first, last - first)
                columns = {
                    "doc_id": part["doc_id"],
                    **signals_of_text(part["text"], self.asked),
                    **self._scores(part["text"]),
                }
                tables.append(pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema))
        return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()

    def _scores(self, text: pa.LargeStringArray) -> dict[str, pa.Array]:
        """The columns of `scores.SPECS`; null for what the recipe does not ask for, and for text in a
        language that a shipped classifier does not know. Without a language model any text is scored."""
        columns = {spec.name: pa.nulls(len(text), ARROW_TYPES[spec.dtype]) for spec in scores.SPECS}
        if "language" in self.models:
            codes, sure = scores.languages(text, self.models["language"])
            columns["language.code"], columns["language.score"] = pa.array(codes, pa.string()), pa.array(sure)
        if self.labels:
            clean, offsets = scores.windows(text.to_pylist())
            for name, label in self.labels.items():
                own = scores.window_scores(clean, self.models[name], label)
                pool = scores.worst_scores if name == "toxicity" else scores.mean_scores
                found = pa.array(pool(own, offsets))
                if self.languages[name] and "language" in self.models:
                    known = pa.array([*self.languages[name], None], pa.string())
                    foreign = pc.invert(pc.is_in(columns["language.code"], value_set=known))
                    found = pc.if_else(foreign, pa.scalar(None, pa.float32()), found)
                columns[f"{name}.score"] = found
        return columns

    def _label(self, name: str, file: fasttext_model.ModelFile) -> str:
        """The label that a classifier's score is the probability of; `UserError` if the model lacks it."""
        section = getattr(self.params, name)
        label = section.label or file.label
        known = fasttext_model.labels(self.models[name])
        if label is None:
            raise UserError(f"filter.{name}.label: missing; the model {section.model} has {', '.join(known)}")
        if label.removeprefix("__label__") not in known:
            raise UserError(
                f"filter.{name}.label: '{label}' is no label of the model{nearest(label, known)}"
                f" (allowed: {', '.join(known)})"
            )
        return label.removeprefix("__label__")
