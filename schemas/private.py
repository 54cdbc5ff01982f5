"""`private/` of `redact`: the keyed hashes of what was recognised in the run. Never published: telephone numbers and the like can
be enumerated by anyone who has the key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.manifest import PublishedFile, Strict

PRIVATE = "private"  # folder below the stage's
SET = "set.json"


class PrivateSet(Strict):
    """`private/set.json`. The entries lie beside it: sorted 64-bit little-endian integers, of each the first 59 bits of a SipHash-2-4
    and the number of the kind, from 1."""

    kind: Literal["corpusmill-private-set-v1"] = "corpusmill-private-set-v1"
    file: PublishedFile = Field(description="of the entries, its path below the stage's folder")
    entries: int = Field(ge=0)
    kinds: list[str] = Field(description="what was collected")
    regions: list[str] = Field(description="numbering plans by which telephone numbers were read")
    key: str | None = Field(
        description="of the hashes, hex; null: it follows from the pseudonyms' key, which is in the environment"
    )
    key_env: str = Field(description="the environment variable of that")
    fingerprint: str = Field(description="of the hashes' key")
