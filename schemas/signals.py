"""Contract 2: signals, one typed column per measured value, keyed by `doc_id`, beside the documents."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from corpusmill.schemas.documents import ID

ARROW_TYPES = {"float": pa.float32(), "int": pa.int64(), "bool": pa.bool_(), "string": pa.string()}


class SignalSpec(BaseModel):
    """What one signal column holds. Its name is `<family>.<value>`, such as `gopher.mean_word_length`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9_]+\.[a-z0-9_]+$")
    dtype: Literal["float", "int", "bool", "string"]
    version: str = Field(default="1", description="Changes when the same text may give another value")
    unit: str = Field(description="characters, words, lines, share of words, probability, ...")
    range: tuple[float | None, float | None] = Field(default=(0.0, None), description="inclusive bounds")
    origin: str = Field(description="The paper or tool whose definition this follows")


def signals_schema(specs: list[SignalSpec]) -> pa.Schema:
    """The Arrow schema of a signals partition: `doc_id`, then one column per spec, in order."""
    fields = [pa.field("doc_id", ID, nullable=False)]
    return pa.schema(fields + [pa.field(spec.name, ARROW_TYPES[spec.dtype]) for spec in specs])
