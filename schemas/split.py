"""The parameters of `split`."""

from __future__ import annotations

from pydantic import Field

from schemas.manifest import Strict
from schemas.stages import Share


class SplitParams(Strict):
    """Validation split, by duplicate cluster, so that no near-copy of it is trained on."""

    validation_share: Share = Field(default=0.02, ge=0, lt=1, description="of each source's text bytes")
    min_documents: int = Field(default=1, ge=0, description="validation documents per source, at least")
