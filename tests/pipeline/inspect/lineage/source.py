"""Bytes of source files by plain means, to hold traced spans to: no reader of ours is asked."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import zstandard


@lru_cache(maxsize=8)
def content(file: str) -> bytes:
    """A file, decompressed."""
    data = Path(file).read_bytes()
    if file.endswith(".gz"):
        return gzip.decompress(data)
    if file.endswith(".zst"):
        return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    return bz2.decompress(data) if file.endswith(".bz2") else data


@lru_cache(maxsize=4)
def column(file: str, name: str) -> list[str]:
    """A column of a Parquet file."""
    return pq.read_table(file, columns=[name])[name].to_pylist()


def text_at(raw: dict[str, Any], span: dict[str, Any], text_column: str) -> str:
    """The characters that the bytes of a span of `trace --json` stand for."""
    start, end = span["start"], span["end"]
    if raw["format"] == "parquet":
        return column(raw["file"], text_column)[int(raw["record"])].encode()[start:end].decode()
    data = content(raw["file"])[start:end]
    if raw["format"] == "jsonl":
        return str(json.loads(b'"' + data + b'"'))
    return data.decode((raw["note"] or "utf-8").split(" ")[0].rstrip(";"))
