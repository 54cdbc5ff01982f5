"""A source of a recipe: where its text comes from, how it is read, and what is known of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from corpusmill.schemas.input_options import (
    CsvOptions,
    DocxOptions,
    EpubOptions,
    FileList,
    Format,
    Path,
    Pattern,
    PdfOptions,
)
from corpusmill.schemas.manifest import Strict

# Formats whose files are records with fields, and archives of such files: conversations can be read from them.
RECORD_FORMATS: tuple[Format, ...] = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "tar", "zip")


class Source(Strict):
    """One named origin of text. `paths` are files, folders, globs or URLs; relative ones start at the
    working directory."""

    paths: list[Path] = Field(
        default=[],
        description="files, folders, globs or URLs, also hf://datasets/OWNER/NAME[@REVISION]/PATH of the Hugging Face Hub",
    )
    files_from: FileList | None = Field(default=None, description="files that a list names, besides `paths`")
    format: Format = Field(
        default="auto", description="`auto` detects it from the file's name and first bytes"
    )
    text_column: str = Field(
        default="text",
        min_length=1,
        description="of records with fields: the one that holds the text; a.b is field b of field a, if no field has that name",
    )
    text_join: str | None = Field(
        default=None,
        description="joins the strings where the text column is a list, or fields of a list's items, such as messages.content;"
        " default: a list is no text",
    )
    conversations: bool = Field(
        default=False,
        description="records are conversations, in any form that a fine-tuning reads (docs/conversations.md): messages, ShareGPT,"
        " Alpaca, prompt and completion, preferences, feedback; then the text column does not matter",
        exclude_if=lambda value: not value,
    )
    id_column: str | None = Field(default=None, description="the field kept as `source_id`; `id` if present")
    url_column: str | None = None
    date_column: str | None = None
    encoding: str | None = Field(default=None, description="encoding of text files; default: detected")
    members: list[Pattern] | None = Field(
        default=None,
        min_length=1,
        description="of archives (.tar, .zip): globs of the members that are read, such as *.jsonl or train/*.txt; one"
        " without / holds in any folder; default: all",
    )
    csv: CsvOptions = CsvOptions()
    pdf: PdfOptions = PdfOptions()
    epub: EpubOptions = EpubOptions()
    docx: DocxOptions = DocxOptions()
    unreadable_files: Literal["quarantine", "stop"] = Field(
        default="quarantine",
        description="what becomes of a FIFO, a link to nothing, a file without the right to read it, or a name that is not"
        " UTF-8: one quarantined record, or the run stops before any work",
    )
    priority: int = Field(
        default=0,
        ge=-(2**31),
        lt=2**31,
        description="of duplicates, the one in the source with the highest priority is kept",
    )
    min_kept: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="share of its records that each stage must keep, or the run ends with exit code 1 after its accounts"
        " are written; 0 allows that nothing is kept",
    )
    license: str | None = Field(default=None, description="SPDX name, for the data card")
    attribution: str | None = None
    description: str | None = None
    homepage: str | None = Field(default=None, description="web page of the source, for a publication")
    citation: str | None = Field(
        default=None, description="how to cite the source, such as BibTeX, for a publication"
    )
    license_files: list[Path] = Field(
        default=[], description="texts of its licences, which a publication carries (docs/publishing.md)"
    )

    @model_validator(mode="after")
    def _some_files(self) -> Source:
        if not self.paths and self.files_from is None:
            raise ValueError("paths: missing: name files, folders, globs or URLs, or give files_from")
        return self

    @model_validator(mode="after")
    def _records_of_conversations(self) -> Source:
        if not self.conversations:
            return self
        if self.format not in ("auto", *RECORD_FORMATS):
            raise ValueError(
                f"format: {self.format} has no records with fields, as conversations are (allowed: auto,"
                f" {', '.join(RECORD_FORMATS)})"
            )
        if self.text_column != "text" or self.text_join is not None:
            raise ValueError(
                "text_column and text_join do not go with conversations, whose fields have fixed names (docs/conversations.md);"
                " leave them out"
            )
        return self

    @property
    def places(self) -> list[str]:
        """All paths and URLs that the source begins with: its paths, and that of its list."""
        return [*self.paths, *([self.files_from.path] if self.files_from else [])]
