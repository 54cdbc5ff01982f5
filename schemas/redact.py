"""The parameters of `redact`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.manifest import Strict

PiiKind = Literal["email", "phone", "ip", "card", "iban", "ssn", "secret"]


class RedactParams(Strict):
    """Personal data and secrets, found by pattern, confirmed by validator, replaced by a tag or pseudonym."""

    kinds: list[PiiKind] = Field(default=["email", "phone", "ip", "card", "iban", "ssn", "secret"])
    replacement: Literal["tag", "pseudonym"] = Field(
        default="tag", description="tag, or pseudonym: the same value gives the same stand-in under one key"
    )
    phone_regions: list[str] = Field(default=["US", "GB"], description="plans tried for numbers without +")
    key_env: str = Field(
        default="CORPUSMILL_REDACT_KEY", description="environment variable that holds the pseudonyms' key"
    )
