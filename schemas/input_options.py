"""What a source of a recipe says of its files: their format, options of single formats, lists of files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from corpusmill.schemas.manifest import Strict

Format = Literal[
    "auto",
    "jsonl",
    "json",
    "csv",
    "tsv",
    "parquet",
    "arrow",
    "text",
    "markdown",
    "warc",
    "arc",
    "wet",
    "html",
    "mediawiki",
    "pdf",
    "epub",
    "docx",
    "documents",
    "tar",
    "zip",
]


class CsvOptions(Strict):
    """The dialect of CSV and TSV files (RFC 4180, where nothing is set)."""

    delimiter: str | None = Field(
        default=None,
        min_length=1,
        max_length=1,
        description="default: of , ; tab and |, what the first line has most of",
    )
    quote: str | None = Field(default='"', min_length=1, max_length=1, description="null: no value is quoted")
    escape: str | None = Field(
        default=None,
        min_length=1,
        max_length=1,
        description="before a quote or delimiter; default: quotes are doubled",
    )
    header: bool | list[str] = Field(
        default=True,
        description="whether the first line names the columns (else they are 0, 1, ...), or their names",
    )


def _path(value: str) -> str:
    if not value.strip():
        raise ValueError("an empty path; name a file, a folder, a glob or a URL")
    return value


def _pattern(value: str) -> str:
    if not value.strip("/ "):
        raise ValueError("an empty pattern; name a glob of members, such as *.jsonl")
    return value


Path = Annotated[str, AfterValidator(_path)]
Pattern = Annotated[str, AfterValidator(_pattern)]


class FileList(Strict):
    """A list of input files: text with a path or URL on each line, or a table with a column of them."""

    path: Path = Field(
        description="of the list: a file or URL, compressed or not; relative names in it start at its folder"
    )
    file_column: str | None = Field(
        default=None,
        min_length=1,
        description="column of a table (CSV, TSV, JSON, JSON Lines, Parquet, Arrow) with the files' paths or URLs; the others"
        " become metadata of each file's documents; default: the list is text, a file on each line, # begins a comment",
    )


class PdfOptions(Strict):
    """How PDF files are read (extra `pdf`)."""

    pages: Literal["join", "each"] = Field(
        default="join", description="one document per file, or one per page: page 3 is record 3 of its file"
    )
    hidden_text: Literal["drop", "keep"] = Field(
        default="drop",
        description="text that cannot be seen: invisible, white on white, less than half a point high, or outside the page;"
        " the text layer of a scanned page is kept either way",
    )
    timeout: float = Field(
        default=30.0,
        gt=0,
        description="processor time one page may take, seconds; a whole file may take 20 times as much",
    )
    max_file_mb: float = Field(
        default=256.0, gt=0, le=512, description="a larger file is quarantined, MiB; it is held in memory"
    )


class EpubOptions(Strict):
    """How EPUB books are read."""

    chapters: Literal["join", "each"] = Field(
        default="join",
        description="one document per book, or one per file of its reading order: the third is record 3",
    )


class DocxOptions(Strict):
    """How DOCX files are read."""

    notes: Literal["keep", "drop"] = Field(
        default="keep",
        description="footnotes and endnotes at the end of the text, numbered where they are named",
    )
