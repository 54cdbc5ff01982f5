"""The parameters of `redact`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

PiiKind = Literal[
    "email", "url_credential", "ip", "mac", "card", "iban", "ssn",
    "br_cpf", "ca_sin", "de_idnr", "es_dni", "fr_nir", "gb_nhs", "gb_nino", "in_aadhaar", "it_cf", "nl_bsn", "pl_pesel",
    "se_pnr",
    "crypto", "secret", "phone",
    "name", "address",
]  # fmt: skip
Replacement = Literal["tag", "pseudonym", "remove"]
# Found by a model that the user names, never by default.
MODEL_KINDS: tuple[PiiKind, ...] = ("name", "address")
DEFAULT_KINDS: tuple[PiiKind, ...] = tuple(kind for kind in get_args(PiiKind) if kind not in MODEL_KINDS)


class RedactParams(Strict):
    """Personal data and secrets, found by pattern, confirmed by validator, replaced by a tag or pseudonym."""

    kinds: list[PiiKind] = Field(
        default=list(DEFAULT_KINDS), description="of two finds of the same bytes, the kind named first wins"
    )
    replacement: Replacement = Field(
        default="tag",
        description="tag; pseudonym: the same value gives the same stand-in under one key; remove: the document goes",
    )
    replacements: dict[PiiKind, Replacement] = Field(
        default={}, description="kinds that are replaced otherwise than `replacement` says"
    )
    ip: Literal["public", "all"] = Field(
        default="public", description="all: private, reserved and documentation addresses too"
    )
    phone_regions: list[str] = Field(default=["US", "GB"], description="plans tried for numbers without +")
    key_env: str = Field(
        default="CORPUSMILL_REDACT_KEY", description="environment variable that holds the pseudonyms' key"
    )
    model: str | None = Field(
        default=None,
        description="what finds names and addresses: spacy:PACKAGE_OR_FOLDER, gliner:FOLDER or module:function",
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
        return self

    def replacement_of(self, kind: PiiKind) -> Replacement:
        """How finds of a kind are replaced."""
        return self.replacements.get(kind, self.replacement)
