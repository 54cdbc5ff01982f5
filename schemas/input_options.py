"""Options of a source for PDF, EPUB and DOCX files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.manifest import Strict


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
