"""The parameters of `tokenizer`."""

from __future__ import annotations

from pydantic import Field

from schemas.manifest import Strict


class TokenizerParams(Strict):
    """Byte-level BPE, trained on the train split alone."""

    vocab_size: int = Field(default=32_000, ge=257, le=2**31)
    path: str | None = Field(default=None, description="an existing tokenizer.json, in place of training")
    sample_mb: float = Field(default=256.0, gt=0, description="text that the trainer sees at most, MiB")
    min_frequency: int = Field(default=2, ge=1, description="pairs seen less often are never merged")
    eos_token: str = Field(default="<|endoftext|>", description="written after every document")
