"""A style guide as data: what answers should be like, in rules that a program can check."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.manifest import Strict

CHECKS = (
    "max_words", "min_words", "max_sentences", "forbidden", "required", "begins_with", "ends_with", "matches", "case", "format",
    "max_grade",
)  # fmt: skip


class Rule(Strict):
    """One rule, of exactly one kind."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    says: str | None = Field(
        default=None, description="the rule as a sentence of the prompt; null: one made of its kind"
    )
    max_words: int | None = Field(default=None, ge=1)
    min_words: int | None = Field(default=None, ge=1)
    max_sentences: int | None = Field(default=None, ge=1)
    forbidden: list[str] | None = Field(
        default=None, min_length=1, description="words or phrases that do not occur, in any case"
    )
    required: list[str] | None = Field(
        default=None, min_length=1, description="words or phrases of which one occurs at least, in any case"
    )
    begins_with: str | None = Field(default=None, min_length=1)
    ends_with: str | None = Field(default=None, min_length=1)
    matches: str | None = Field(
        default=None, description="a regular expression (Python) that is found in the text"
    )
    case: Literal["lower", "upper", "sentence"] | None = Field(
        default=None,
        description="of letters: all lower, all upper; sentence: the first one of each sentence is upper",
    )
    format: Literal["plain", "json", "list"] | None = Field(
        default=None,
        description="plain: no Markdown; json: one JSON value; list: every line begins with - or a number",
    )
    max_grade: float | None = Field(
        default=None, description="reading level in school years (Coleman and Liau 1975), for English"
    )

    @model_validator(mode="after")
    def one_kind(self) -> Rule:
        given = [name for name in CHECKS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"rule {self.id}: has {' and '.join(given) or 'no check'}: give one of {', '.join(CHECKS)}"
            )
        if self.matches is not None:
            try:
                re.compile(self.matches)
            except re.error as error:
                raise ValueError(f"rule {self.id}: matches: no regular expression: {error}") from None
        return self

    @property
    def kind(self) -> str:
        return next(name for name in CHECKS if getattr(self, name) is not None)


class StyleGuide(Strict):
    """A YAML file of rules."""

    name: str
    prompt: str = Field(default="", description="what stands before the rules in the system prompt")
    rules: list[Rule] = Field(min_length=1)

    @model_validator(mode="after")
    def unique(self) -> StyleGuide:
        ids = [rule.id for rule in self.rules]
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice:
            raise ValueError(f"rules: two have the id {twice}")
        return self


class RuleResult(Strict):
    """Of one rule, over all texts."""

    id: str
    kind: str
    kept: Estimate = Field(description="share of texts that satisfy it")
    broken: list[int] = Field(description="numbers of the first texts that do not, from 0")


class StyleReport(Strict):
    """What `corpusmill style` prints."""

    guide: str
    texts: int
    all_rules: Estimate = Field(description="share of texts that satisfy every rule")
    rules: list[RuleResult]
