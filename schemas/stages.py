"""What a stage declares of itself, a stage of the user's own, and the parameters of `ingest`, `decontaminate`, `redact` and
`report`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import Field, JsonValue, field_validator, model_validator

from corpusmill.schemas.manifest import MOST_MIB, Strict

Share = float
Kind = Literal["source", "local", "global"]


@dataclass(frozen=True)
class Declaration:
    """A stage as the recipe, the runner, the command line and the docs know it.

    It annotates the stage's field of `corpusmill.schemas.recipe.Recipe`, whose name is the stage's, whose type is the
    model of its parameters, and whose place among the fields is its place in a run. The code is
    `corpusmill.pipeline.<name>.stage`, imported when the stage runs.
    """

    kind: Kind  # source: makes partitions; local: partition in, partition out; global: looks at all of them
    summary: str
    example: str = ""  # of its command; "": it has none
    reads: tuple[str, ...] = ()  # stages that must come before, whose files it reads besides the documents
    may_read: tuple[
        str, ...
    ] = ()  # stages whose files it reads too, where they are in the recipe; they come before
    reads_all: bool = False  # whether it reads all stages before it
    folder: str = ""  # below the run's folder, where it is not the stage's name
    wants: tuple[str, str] | None = None  # a parameter without which it cannot run, and what that is
    of: Literal["any", "texts", "conversations"] = "any"  # which sources it works on


@dataclass(frozen=True)
class StageSpec:
    """A declared stage with its name and parameters."""

    name: str
    params: type[Strict]
    declared: Declaration

    @property
    def folder(self) -> str:
        """Its folder below the run's."""
        return self.declared.folder or self.name

    @property
    def chain(self) -> list[str]:
        """The stages that its command runs."""
        return list(dict.fromkeys(["ingest", *self.declared.reads, self.name]))


class CustomStage(Strict):
    """A stage of the user's own: a function on an Arrow table of documents (docs/custom-stages.md)."""

    python: str = Field(
        description="module:function; imported from the recipe's folder or the working directory"
    )
    version: str | None = Field(
        default=None,
        min_length=1,
        description="changes with the code; may be set by @corpusmill.stage instead",
    )
    name: str = Field(
        default="", description="of the stage, its folder and its rule; default: the function's"
    )
    params: dict[str, JsonValue] = Field(default={}, description="keyword arguments of the function")

    @field_validator("python")
    @classmethod
    def module_and_function(cls, value: str) -> str:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", value):
            raise ValueError(f"'{value}' must be module:function, such as my_stages:shorten")
        return value

    @field_validator("version", mode="before")
    @classmethod
    def number_or_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value  # YAML reads 1 as a number

    @field_validator("name")
    @classmethod
    def plain(cls, value: str) -> str:
        if value and not re.fullmatch(r"[a-z][a-z0-9_]*", value):
            raise ValueError(
                f"'{value}': a name consists of small letters, digits and '_', and begins with a letter"
            )
        return value

    def model_post_init(self, context: Any) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.python.partition(":")[2].lower())


class IngestParams(Strict):
    """Raw files to document partitions."""

    partition_mb: float = Field(
        default=64.0, gt=0, le=MOST_MIB, description="text per partition, MiB; bounds a task's memory"
    )
    max_record_mb: float = Field(
        default=16.0, gt=0, le=MOST_MIB, description="a longer record is quarantined, MiB"
    )
    html_extractor: Literal["main_text", "resiliparse", "trafilatura", "all_text"] = Field(
        default="main_text",
        description="main_text (learned, docs/inputs.md), resiliparse, all_text, or trafilatura (extra `html`)",
    )
    repair_encoding: bool = Field(default=True, description="repair mojibake with ftfy; repairs are counted")
    max_replaced: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="share of a text's characters that may be U+FFFD for bytes that are no text; with more it is quarantined",
    )
    min_chars: int = Field(default=1, ge=1, description="records with less text are quarantined as empty")


class ReportParams(Strict):
    """The HTML report and the data card."""

    samples: int = Field(default=3, ge=0, le=50, description="example texts per rule, and of kept documents")
    sample_chars: int = Field(default=600, ge=50)
    labels: str | None = Field(
        default=None,
        description="JSON of planted documents and what should become of them: reported as caught or not",
    )
    card: str | None = Field(default=None, description="file for the data card; default: beside the report")


PiiKind = Literal[
    "email", "url_credential", "ip", "mac", "card", "iban", "ssn",
    "br_cpf", "ca_sin", "de_idnr", "es_dni", "fr_nir", "gb_nhs", "gb_nino", "in_aadhaar", "it_cf", "nl_bsn", "pl_pesel",
    "se_pnr",
    "crypto", "secret", "phone", "masked_phone",
    "patient_id", "social_security", "national_id", "license_id", "passport", "driver_license", "tax_id", "account_id",
    "employee_id", "order_id", "case_id",
    "name", "address",
]  # fmt: skip
Replacement = Literal["tag", "pseudonym", "remove"]
# Found by a model that the user names, never by default.
MODEL_KINDS: tuple[PiiKind, ...] = ("name", "address")
DEFAULT_KINDS: tuple[PiiKind, ...] = tuple(kind for kind in get_args(PiiKind) if kind not in MODEL_KINDS)
# Numbers and addresses that are the same datum wherever they stand, whether a word beside them says so or not.
EverywhereKind = Literal[
    "email", "phone", "card", "iban", "ssn",
    "br_cpf", "ca_sin", "de_idnr", "es_dni", "fr_nir", "gb_nhs", "gb_nino", "in_aadhaar", "it_cf", "nl_bsn", "pl_pesel",
    "se_pnr", "social_security", "national_id", "tax_id", "patient_id",
]  # fmt: skip
EVERYWHERE: tuple[EverywhereKind, ...] = get_args(EverywhereKind)
RedactedField = Literal["url", "metadata", "source_id"]


class RedactParams(Strict):
    """Personal data and secrets, found by pattern, confirmed by validator, replaced by a tag or pseudonym."""

    kinds: list[PiiKind] = Field(
        default=list(DEFAULT_KINDS),
        description="of two matches on the same bytes, the kind listed first wins",
    )
    replacement: Replacement = Field(
        default="tag",
        description="tag; pseudonym: the same value gives the same stand-in under one key; remove: the document goes",
    )
    replacements: dict[PiiKind, Replacement] = Field(
        default={}, description="kind -> its replacement, if not `replacement`"
    )
    ip: Literal["public", "all"] = Field(
        default="public", description="all: private, reserved and documentation addresses too"
    )
    fields: list[RedactedField] = Field(
        default=["url", "metadata"],
        description="columns besides the text that are redacted: url, metadata (keys, strings and numbers of the JSON), source_id",
    )
    everywhere: list[EverywhereKind] = Field(
        default=list(EVERYWHERE),
        description="kinds of which a datum recognised in one document is replaced in all; []: each document by itself",
    )
    phone_regions: list[str] = Field(
        default=["US", "GB"], description="numbering plans tried for numbers without +"
    )
    phone_languages: bool = Field(
        default=True,
        description="also the plans of the regions where the document's language is spoken, if `language` is known",
    )
    key_env: str = Field(
        default="CORPUSMILL_REDACT_KEY", description="environment variable that holds the pseudonyms' key"
    )
    model: str | None = Field(
        default=None,
        description="model that finds names and addresses: spacy:PACKAGE_OR_FOLDER, gliner:FOLDER or module:function",
    )

    @model_validator(mode="after")
    def _known(self) -> RedactParams:
        for kind in self.replacements:
            if kind not in self.kinds:
                raise ValueError(f"replacements: {kind} is not among the kinds; add it, or leave it out")
        wanted = [kind for kind in self.kinds if kind in MODEL_KINDS]
        if wanted and self.model is None:
            raise ValueError(
                f"model: {', '.join(wanted)} can only be found by a model; name one, such as spacy:en_core_web_sm"
            )
        if self.model is not None and not wanted:
            raise ValueError(f"model: nothing to find; add {' or '.join(MODEL_KINDS)} to the kinds")
        for name in ("fields", "everywhere"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                raise ValueError(f"{name}: each may be named once")
        return self

    @property
    def known_kinds(self) -> tuple[PiiKind, ...]:
        """The kinds that are looked for everywhere: those of `everywhere` that are redacted at all."""
        return tuple(kind for kind in self.everywhere if kind in self.kinds)

    def replacement_of(self, kind: PiiKind) -> Replacement:
        """How finds of a kind are replaced."""
        return self.replacements.get(kind, self.replacement)


Part = Literal["question", "answer", "passage", "text"]
PARTS: tuple[Part, ...] = get_args(Part)
# What a field of an evaluation file may be: a part, the other choices, which of them is right, a name.
ROLES = (*PARTS, "solution", "choices", "correct", "set", "id")
MAX_NGRAM = 64
NEAR = 0.85
NEAR_FLOOR = 0.7  # share of words below which nothing is noted as a near copy


class DecontaminateParams(Strict):
    """Documents that hold items of evaluation sets, found by their runs of words."""

    against: list[str] = Field(
        default_factory=list,
        description="evaluation files, folders, globs or URLs: JSONL, CSV, Parquet, text",
    )
    fields: list[str] = Field(
        default_factory=list,
        description="ROLE=FIELD of question, answer, solution, choices, correct, passage, text, set, id, or FILE:ROLE=FIELD;"
        " usual names are known",
    )
    ngram: int = Field(default=13, ge=2, le=MAX_NGRAM, description="words in a row that must be the same")
    measure: Literal["words", "ngrams", "paragraph"] = Field(
        default="words",
        description="share of an item's words that its n-grams cover, of its n-grams, or of a paragraph's (marin)",
    )
    threshold: Share = Field(
        default=0.5,
        ge=0,
        le=1,
        description="share from which a document counts as contaminated; 0: one n-gram is enough",
    )
    near: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of an item's words that counts where others were changed, left out or put between, from 0.7;"
        " 0: off; default: 0.85, and off with the measures of other tools",
    )
    parts: list[Part] = Field(
        default=["question", "answer", "text"],
        min_length=1,
        description="what makes a document count; passage is often a page of its own, and only reported",
    )
    min_words: int = Field(
        default=8, ge=3, description="shorter items (question and answer) are not searched for, but counted"
    )
    min_letters: int = Field(
        default=20, ge=10, description="or with fewer words, of five or more, if these have so many letters"
    )
    answer_within: int = Field(
        default=32,
        ge=1,
        le=1000,
        description="words after a short question among which its answer must occur",
    )
    max_items: int = Field(
        default=10, ge=1, description="n-grams in more items than this are boilerplate: ignored and counted"
    )
    max_documents: int | None = Field(
        default=None,
        ge=1,
        description="n-grams found in more documents are boilerplate too; default: none is",
    )
    action: Literal["remove", "cut", "report"] = Field(
        default="remove", description="remove the document, cut the spans, or only report"
    )
    span: Literal["paragraph", "window"] = Field(
        default="paragraph", description="cut the paragraphs with matched words, or these words alone"
    )
    min_left: int = Field(
        default=20, ge=1, description="words; a document with fewer left is removed as a whole"
    )

    @field_validator("fields")
    @classmethod
    def known_roles(cls, fields: list[str]) -> list[str]:
        for entry in fields:
            role, sep, name = entry.partition("=")
            if not sep or not name or role.rpartition(":")[2] not in ROLES:
                raise ValueError(
                    f"'{entry}' must be ROLE=FIELD or FILE:ROLE=FIELD, ROLE one of {', '.join(ROLES)}"
                )
        roles = [entry.partition("=")[0] for entry in fields]
        if len(set(roles)) != len(roles):
            raise ValueError("each role may be given one field")
        return fields

    @model_validator(mode="after")
    def short_is_short(self) -> DecontaminateParams:
        if self.min_words > self.ngram:
            raise ValueError(f"min_words {self.min_words} exceeds ngram {self.ngram}")
        if self.near is not None and 0 < self.near < NEAR_FLOOR:
            raise ValueError(f"near {self.near} must be 0 (off), or {NEAR_FLOOR} or more")
        return self

    @property
    def near_share(self) -> float:
        """`near`, or its default; 0: off."""
        if self.near is not None:
            return self.near
        return NEAR if self.measure == "words" else 0.0
