"""The parameters of `decontaminate`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator, model_validator

from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.stages import Share

Part = Literal["question", "answer", "passage", "text"]
PARTS: tuple[Part, ...] = get_args(Part)
# What a field of an evaluation file may be: a part, the other choices, which of them is right, a name.
ROLES = (*PARTS, "choices", "correct", "set", "id")
MAX_NGRAM = 64


class DecontaminateParams(Strict):
    """Documents that hold items of evaluation sets, found by their runs of words."""

    against: list[str] = Field(
        default_factory=list,
        description="evaluation files, folders, globs or URLs: JSONL, CSV, Parquet, text",
    )
    fields: list[str] = Field(
        default_factory=list,
        description="ROLE=FIELD of question, answer, choices, correct, passage, text, set, id; usual names are known",
    )
    ngram: int = Field(default=13, ge=2, le=MAX_NGRAM, description="words in a row that must be the same")
    measure: Literal["words", "ngrams", "paragraph"] = Field(
        default="words",
        description="share of an item's words that its n-grams cover, of its n-grams, or of a paragraph's (marin)",
    )
    threshold: Share = Field(
        default=0.5, ge=0, le=1, description="share from which a document counts; 0: one n-gram is enough"
    )
    parts: list[Part] = Field(
        default=["question", "answer", "text"],
        min_length=1,
        description="what makes a document count; passage is often a page of its own, and only reported",
    )
    min_words: int = Field(
        default=8, ge=3, description="a shorter item (question and answer) is not used, and counted"
    )
    answer_within: int = Field(
        default=32, ge=1, le=1000, description="words after a short question in which its answer must stand"
    )
    max_items: int = Field(
        default=10, ge=1, description="n-grams in more items than this are boilerplate, not used, and counted"
    )
    max_documents: int | None = Field(
        default=None, ge=1, description="n-grams found in more documents are boilerplate too; absent: none is"
    )
    action: Literal["remove", "cut", "report"] = Field(
        default="remove", description="remove the document, cut the spans, or only report"
    )
    span: Literal["paragraph", "window"] = Field(
        default="paragraph", description="cut the paragraphs with matched words, or these words alone"
    )
    min_left: int = Field(
        default=20, ge=1, description="words; a document cut to fewer is removed as a whole"
    )

    @field_validator("fields")
    @classmethod
    def known_roles(cls, fields: list[str]) -> list[str]:
        for entry in fields:
            role, sep, name = entry.partition("=")
            if not sep or not name or role not in ROLES:
                raise ValueError(f"'{entry}' must be ROLE=FIELD, ROLE one of {', '.join(ROLES)}")
        roles = [entry.partition("=")[0] for entry in fields]
        if len(set(roles)) != len(roles):
            raise ValueError("each role may be given one field")
        return fields

    @model_validator(mode="after")
    def short_is_short(self) -> DecontaminateParams:
        if self.min_words > self.ngram:
            raise ValueError(f"min_words {self.min_words} exceeds ngram {self.ngram}")
        return self
