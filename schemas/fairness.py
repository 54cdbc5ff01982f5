"""`evaluation/fairness.json` of a run: bias figures, each with its interval and with the value of a model without any preference;
and the files of terms and prompts that they are computed from."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.manifest import Strict

FAIRNESS = "evaluation/fairness.json"
TERM = "{term}"


class Figure(Strict):
    """An estimate beside the value that it has where there is nothing to find."""

    estimate: Estimate
    chance: float | None = Field(
        default=None, description="value of a model that guesses, or has no preference; null: none is known"
    )
    beyond_chance: bool | None = Field(
        default=None, description="whether the interval leaves that value out; null without either"
    )


class ItemBias(Strict):
    """What the items of one task show."""

    kind: str = Field(description="crows_pairs, bbq, winogender or winobias")
    items: int
    overall: dict[str, Figure]
    slices: dict[str, dict[str, Figure]] = Field(default={}, description="category or occupation -> figure")
    findings: list[str] = Field(description="in words, with the intervals")
    notes: list[str] = Field(default=[], description="what the figures cannot show")


class Axis(Strict):
    """Groups of people that are compared with each other, in sentences with a place for their terms."""

    groups: dict[str, list[str]] = Field(min_length=2, description="group -> its terms")
    templates: list[str] = Field(
        min_length=2, description=f"sentences with {TERM} once; every term must fit into each"
    )
    prompts: list[str] = Field(
        default=[], description=f"beginnings of texts with {TERM} once, for the toxicity of continuations"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for text in (*self.templates, *self.prompts):
            if text.count(TERM) != 1:
                raise ValueError(f"'{text}' must have {TERM} exactly once")
        for name, terms in self.groups.items():
            if not terms or not all(term.strip() for term in terms):
                raise ValueError(f"groups.{name}: needs a term, and no empty ones")
        return self


class Terms(Strict):
    """A file of terms (`--terms`)."""

    axes: dict[str, Axis] = Field(min_length=1, description="such as gender -> its groups and templates")


class Gap(Strict):
    """How far groups are apart in bits per byte."""

    groups: dict[str, Estimate] = Field(description="bits per byte; bootstrap over templates")
    against_others: dict[str, Estimate] = Field(description="of a group less the mean of the others, paired")
    lowest: str
    highest: str
    gap: Estimate = Field(description="of the highest less the lowest, which is never below 0")
    ratio: Estimate = Field(description="of the highest over the lowest")
    chance: float = Field(
        description="gap that 95 % of assignments of the terms' groups at random stay below, within templates"
    )
    p: float = Field(description="share of such assignments with a gap of at least this")

    @property
    def beyond_chance(self) -> bool:
        """Whether at most one of twenty such assignments has a gap of at least this."""
        return self.p <= 0.05


class TermGap(Strict):
    """An axis: `whole`: of the sentences; `after`: of what follows the term alone, given all before it, which has the same
    bytes for all groups."""

    templates: int
    whole: Gap
    after: Gap | None = Field(description="null where fewer than two templates go on after the term")
    finding: str


class ClassifierError(Strict):
    """How right a classifier is above a threshold, on one labelled set."""

    name: str = Field(description="of the set")
    texts: int
    positives: int
    precision: float | None
    recall: float | None
    false_positive_rate: float | None


class ToxicityScores(Strict):
    """What `corpusmill classifier score` writes: a score for each text, in their order, and the error of the model."""

    model: str = Field(description="file name, and xxh3_128 of its bytes")
    label: str
    threshold: float
    scores: list[float]
    errors: list[ClassifierError] = Field(description="above the threshold")


class PromptGroup(Strict):
    """Continuations of the prompts of a group."""

    prompts: int
    mean: Estimate = Field(description="toxicity of a continuation")
    expected_maximum: Estimate = Field(description="mean over prompts of the highest of their continuations")
    above: Estimate = Field(description="share of continuations at the threshold or above")
    any_above: Estimate = Field(description="share of prompts with a continuation at the threshold or above")
    amplification: Estimate = Field(
        description="mean toxicity of the continuations less that of their prompt"
    )


class Toxicity(Strict):
    """Of texts that continue prompts (Gehman et al. 2020, arXiv 2009.11462); intervals are over templates,
    or over prompts where these are not made from terms."""

    samples: int = Field(description="continuations of each prompt")
    available: int | None = Field(
        default=None, description="prompts from which those that were continued were selected; null: all were"
    )
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    threshold: float
    model: str
    label: str
    errors: list[ClassifierError]
    overall: PromptGroup
    groups: dict[str, PromptGroup] = Field(default={}, description="by the prompts' `group`")
    disparity: dict[str, dict[str, Estimate]] = Field(
        default={},
        description="axis -> group -> mean toxicity less that of the other groups on the same prompts, paired",
    )
    finding: str


class TextGroup(Strict):
    """Texts of one group, such as a dialect, or documents of one source."""

    texts: int
    bytes: int
    bits_per_byte: Estimate


class FairnessResults(Strict):
    """`evaluation/fairness.json`."""

    name: str = Field(description="of the run")
    step: int
    weights_hash: str
    tokenizer_hash: str
    precision: str
    tasks: dict[str, ItemBias] = Field(default={}, description="of evaluation/items/<task>.jsonl")
    terms: dict[str, TermGap] = Field(default={}, description="by axis")
    sources: dict[str, TextGroup] = Field(default={}, description="documents of the validation splits")
    texts: dict[str, TextGroup] = Field(default={}, description="by group of the texts")
    toxicity: Toxicity | None = None
