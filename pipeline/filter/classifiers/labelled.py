"""Labelled text of the user's own: JSONL, CSV or TSV files, gzipped or not, into `Labelled` sets."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any

from corpusmill.common.errors import UserError, nearest
from corpusmill.pipeline.filter.classifiers.training import NOT_STATED, Labelled

SHOWN = 8  # labels named in an error
TEMPLATES = ("phrase", "toxicity")  # fields of the identity template set


def read_labelled(
    path: Path, text_column: str, label_column: str, positive: list[str], licence: str = NOT_STATED
) -> Labelled:
    """The texts of a file, positive where the label is one of `positive`.

    Half a surrogate pair in a text becomes U+FFFD, as in `ingest`. Raises `UserError` for a file that is not there or
    no JSONL, CSV or TSV, for a record without one of the two fields or whose text is none, for a file without records,
    and if no record has one of the labels.
    """
    return _labelled(path, _records(path), text_column, label_column, positive, licence)


def _labelled(
    path: Path, records: list[Any], text_column: str, label_column: str, positive: list[str], licence: str
) -> Labelled:
    texts, labels = [], []
    for number, row in enumerate(records, 1):
        fields = row if isinstance(row, dict) else {}
        if None in fields:  # where `csv` puts what is too much
            raise UserError(
                f"{path}: record {number} has more fields than the first line; quote texts that hold a delimiter"
            )
        for column in (text_column, label_column):
            if fields.get(column) is None:
                known = [key for key, value in fields.items() if value is not None]
                raise UserError(f"{path}: record {number} has no '{column}'{nearest(column, known)}")
        text = fields[text_column]
        if not isinstance(text, str):
            raise UserError(
                f"{path}: record {number}: its '{text_column}' is no text but of type {type(text).__name__}"
            )
        texts.append(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
        labels.append(str(fields[label_column]))
    if not texts:
        raise UserError(f"{path}: holds no records; wanted: one text and its label each")
    seen = sorted(set(labels))
    missing = [label for label in positive if label not in seen]
    if len(missing) == len(positive):
        shown = ", ".join(seen[:SHOWN]) + (", ..." if len(seen) > SHOWN else "")
        raise UserError(
            f"{path}: --positive {missing[0]}: no record has that '{label_column}'{nearest(missing[0], seen)}"
            f" (there are: {shown})"
        )
    return Labelled(path.name.removesuffix(".gz"), texts, [label in positive for label in labels], licence)


def read_identity(path: Path, text_column: str, label_column: str, positive: list[str]) -> Labelled:
    """Phrases that name identities: the template set as it is (its fields `phrase`, `toxicity`), or a file with the
    fields and labels of the training data."""
    records = _records(path)
    first: Any = next(iter(records), {})
    if isinstance(first, dict) and all(name in first for name in TEMPLATES):
        text_column, label_column, positive = *TEMPLATES, ["toxic"]
    return _labelled(path, records, text_column, label_column, positive, NOT_STATED)


def _records(path: Path) -> list[Any]:
    name = path.name.removesuffix(".gz")
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8-sig")
        if name.endswith((".csv", ".tsv")):
            csv.field_size_limit(1 << 30)
            delimiter = "\t" if name.endswith("tsv") else ","
            return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, zlib.error, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as labelled JSONL, CSV or TSV: {error}") from None
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise UserError(
                    f"{path}: line {number} cannot be read as labelled JSONL ({error}); CSV and TSV are known by"
                    " their ending"
                ) from None
    return rows
