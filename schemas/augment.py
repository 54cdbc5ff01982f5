"""The parameters of `augment`, and the account of the copies that it made."""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from corpusmill.schemas.manifest import Strict

SUFFIX = "-augmented"  # of a source's name: the source of its copies
SUMMARY = "augment.json"
CopyOutcome = Literal["made", "unchanged", "failed"]
MADE: Final = "made"
UNCHANGED: Final = "unchanged"
FAILED: Final = "failed"


class CopyParams(Strict):
    """One way in which copies are made: noise that ships, or a function of the user's own, such as one that calls a model."""

    perturb: str | None = Field(
        default=None, description="KIND:RATE or KIND:RATE:FILE, such as typos:0.02 (docs/robustness.md)"
    )
    python: str | None = Field(
        default=None,
        description="module:function, a list of texts to a list of texts of the same length, None for one that it could not make;"
        " imported from the recipe's folder or the working directory",
    )
    version: str | None = Field(
        default=None, min_length=1, description="of the function: changes with its code or its model"
    )
    params: dict[str, JsonValue] = Field(default={}, description="keyword arguments of the function")
    at_once: int = Field(default=16, ge=1, le=4096, description="texts that the function gets together")
    share: float = Field(
        gt=0, le=1, description="of the documents to train on, chosen by a hash of their ids"
    )
    times: int = Field(default=1, ge=1, le=100, description="copies of each, with noise drawn for each")
    sources: list[str] | None = Field(default=None, min_length=1, description="sources; default: all")

    @field_validator("version", mode="before")
    @classmethod
    def number_or_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) else value  # YAML reads 1 as a number

    @field_validator("python")
    @classmethod
    def module_and_function(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", value):
            raise ValueError(f"'{value}' must be module:function, such as my_model:paraphrase")
        return value

    @model_validator(mode="after")
    def one_way(self) -> CopyParams:
        if (self.perturb is None) == (self.python is None):
            raise ValueError("perturb or python: give one of them")
        if self.python is not None and self.version is None:
            raise ValueError(
                f"version: missing; give one that changes with the code or the model of {self.python}"
            )
        if self.python is not None and self.times > 1:
            raise ValueError("times: more than 1 is for perturb; a function gives a text the same copy again")
        if self.perturb is not None and (self.version is not None or self.params):
            raise ValueError("version and params are for python; leave them out")
        return self

    @property
    def by(self) -> str:
        """What copies of it are named by."""
        return self.perturb or f"{self.python}@{self.version}"


class AugmentParams(Strict):
    """Copies of documents to train on, beside them, in a source of their own; none of a validation document."""

    copies: list[CopyParams] = Field(default=[], description="ways to make copies; each is applied by itself")

    @model_validator(mode="after")
    def each_once(self) -> AugmentParams:
        names = [one.by for one in self.copies]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"copies: {name} is there twice; raise its share or times")
        return self


class AugmentedSide(Strict):
    """As `split.json` counts a side of a source."""

    docs: int = Field(ge=0)
    bytes: int = Field(ge=0)


class AugmentedSource(Strict):
    """The copies of a source."""

    of: str
    train: AugmentedSide
    validation: AugmentedSide = AugmentedSide(docs=0, bytes=0)


class Augmented(Strict):
    """`augment.json`: sources of copies, by name; and for each way to make them, chosen = made + unchanged + failed."""

    sources: dict[str, AugmentedSource]
    by: dict[str, dict[CopyOutcome, int]]
