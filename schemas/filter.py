"""The parameters of `filter`. Defaults are what a newcomer should run with; each has its reason."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.manifest import Strict
from schemas.stages import Share


class LanguageParams(Strict):
    """fastText lid.176; a document is removed when its language is not in `keep` or the model is unsure."""

    keep: list[str] | None = Field(default=None, description="ISO 639-1 codes; null keeps every language")
    threshold: Share = Field(
        default=0.65, ge=0, le=1, description="of the model's probability (FineWeb, DCLM)"
    )
    model: str | None = Field(
        default=None, description="URL of another fastText .bin/.ftz; absent: lid.176.ftz"
    )


class ClassifierParams(Strict):
    """A fastText classifier: `remove_above` for what is unwanted, `remove_below` for what is wanted."""

    model: str | None = Field(
        default=None, description="URL of a fastText .bin/.ftz; absent: the one shipped"
    )
    label: str | None = Field(default=None, description="the label scored; absent: the shipped model's")
    remove_above: Share | None = Field(default=None, ge=0, le=1)
    remove_below: Share | None = Field(default=None, ge=0, le=1)


RuleSet = Literal["gopher_quality", "gopher_repetition", "c4", "fineweb"]


class FilterParams(Strict):
    """Signals measured once, rules judged on them."""

    rules: list[RuleSet] = Field(default=["gopher_repetition", "gopher_quality", "c4", "fineweb"])
    thresholds: dict[str, float] = Field(
        default_factory=dict, description="`<rule set>.<rule>` -> number in place of the published one"
    )
    disable: list[str] = Field(default_factory=list, description="`<rule set>.<rule>` measured, never judged")
    skip_sources: dict[str, list[str]] = Field(
        default_factory=dict, description="source -> rule sets not judged there, such as code: [c4]; `*`: all"
    )
    language: LanguageParams | None = LanguageParams()
    toxicity: ClassifierParams | None = ClassifierParams(remove_above=0.95)
    quality: ClassifierParams | None = ClassifierParams()
