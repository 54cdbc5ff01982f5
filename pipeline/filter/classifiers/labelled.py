"""Labelled text: JSONL, CSV and TSV files of the user, gzipped or not, read into `Labelled` sets; and which texts are held
out of training, so that a near copy of a text that the model learns from does not judge it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.engine.shuffle import among
from corpusmill.pipeline.filter.classifiers.model_words import cleaned
from corpusmill.pipeline.filter.text.view import Array, text_buffers

NOT_STATED = "not stated"  # the licence of data, unless it is given
SHOWN = 8  # labels named in an error
TEMPLATES = ("phrase", "toxicity")  # fields of the identity template set
RUN: Final = 4  # words: what two texts are compared by
COPY: Final = 0.5  # of a text's runs: with more of them in the training part it is a copy

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Labelled:
    """One set of labelled texts. `positive[i]`: whether `texts[i]` is of the class that the model scores."""

    name: str
    texts: Sequence[str]
    positive: Sequence[bool]
    licence: str = NOT_STATED
    note: str = ""

    def __len__(self) -> int:
        return len(self.texts)


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
                f"{path}: record {number}: its '{text_column}' is not a text but of type {type(text).__name__}"
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


def read_texts(path: Path, text_column: str) -> list[str]:
    """The texts of a JSONL file without labels; `-`: of standard input. Raises `UserError` for a record without one."""
    where = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        rows = [json.loads(line) for line in data.decode("utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: cannot be read as JSONL: {error}") from None
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not isinstance(row.get(text_column), str):
            raise UserError(f"{where}: record {number} has no text '{text_column}'")
    return [
        row[text_column].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for row in rows
    ]


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


def concatenated(name: str, parts: Sequence[Labelled]) -> Labelled:
    """All texts of several sets as one."""
    texts = [text for part in parts for text in part.texts]
    return Labelled(name, texts, [bool(p) for part in parts for p in part.positive])


def chosen(part: Labelled, wanted: npt.NDArray[np.bool_]) -> Labelled:
    """The texts of a set that are `wanted`, bool[texts]."""
    texts, positive = list(compress(part.texts, wanted)), list(map(bool, compress(part.positive, wanted)))
    return replace(part, texts=texts, positive=positive)


def held_out(texts: Sequence[str], share: float, seed: int) -> npt.NDArray[np.bool_]:
    """bool[texts]: about `share` of them, by the seed and the lowest hash of a text's runs of four words.

    So equal texts are on one side, and near copies are as often as they share their runs (min-wise hashing,
    Broder 1997), whatever their case and punctuation.
    """
    runs, offsets = runs_of(texts)
    side = np.empty(len(texts), np.float64)
    _sides(runs, offsets, np.uint64(seed), side)
    return side < share


def copies(texts: Sequence[str], learnt: Array) -> npt.NDArray[np.bool_]:
    """bool[texts]: whether more than `COPY` of a text's runs are among `learnt`, the sorted hashes of the training part's."""
    runs, offsets = runs_of(texts)
    before = np.concatenate([[0], np.cumsum(among(runs, learnt))])
    shared, every = before[offsets[1:]] - before[offsets[:-1]], np.diff(offsets)
    return np.asarray((shared > COPY * every) & (every > 0))


def runs_of(texts: Sequence[str]) -> tuple[Array, Array]:
    """(uint64 hashes of every run of four words, int64[texts + 1]); a shorter text is one run, an empty one none."""
    data, offsets = text_buffers(pa.array(texts, pa.large_string()))
    words, _ = cleaned(data, offsets[:-1], offsets[1:])
    count = np.diff(words.bounds, axis=1)[:, 0]
    ends = np.concatenate([[0], np.cumsum(np.minimum(count, np.maximum(count - RUN + 1, 1)))]).astype(
        np.int64
    )
    runs = np.empty(ends[-1], np.uint64)
    _runs(words.hashes, words.bounds, ends, runs)
    return runs, ends


@compiled
def _runs(hashes: Any, bounds: Any, ends: Any, runs: Any) -> None:
    for d in range(len(bounds)):
        for r in range(ends[d + 1] - ends[d]):
            first = bounds[d, 0] + r
            h = np.uint64(0)
            for w in range(first, min(first + RUN, bounds[d, 1])):
                h = (h ^ np.uint64(hashes[w])) * _MIX
                h ^= h >> np.uint64(29)
            runs[ends[d] + r] = h


@compiled
def _sides(runs: Any, offsets: Any, seed: Any, side: Any) -> None:
    for d in range(len(side)):
        least = np.uint64(0xFFFFFFFFFFFFFFFF)
        for r in range(offsets[d], offsets[d + 1]):
            least = min(least, runs[r])
        # The lowest hash only groups texts that belong together: it is mixed again to choose the side.
        h = (least ^ (seed + np.uint64(1)) * _MIX) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        side[d] = np.float64((h ^ (h >> np.uint64(33))) >> np.uint64(11)) / 9007199254740992.0
