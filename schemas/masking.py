"""What rows are changed into before a model reads them: text with masks, or with its middle moved to the end."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict


class MaskingConfig(Strict):
    """Masked language modelling (BERT, Devlin et al. 2018): some tokens are hidden, and they are what is predicted."""

    share: float = Field(
        default=0.15, gt=0, lt=1, description="of the tokens, predicted (BERT: 0.15; ModernBERT: 0.3)"
    )
    whole_words: bool = Field(default=True, description="tokens of one word are hidden together")
    token: str = Field(default="<|mask|>", description="the tokenizer's token of a mask")
    masked: float = Field(default=0.8, ge=0, le=1, description="of predicted tokens, replaced by the mask")
    random: float = Field(
        default=0.1, ge=0, le=1, description="of predicted tokens, replaced by a random one; the rest stay"
    )

    @model_validator(mode="after")
    def shares(self) -> MaskingConfig:
        if self.masked + self.random > 1 + 1e-9:
            raise ValueError(
                f"masked {self.masked:g} and random {self.random:g} are more than 1 together: lower one of them"
            )
        return self


class InfillConfig(Strict):
    """Fill in the middle (Bavarian et al. 2022): in some documents the middle comes last, behind what surrounds it."""

    rate: float = Field(default=0.5, gt=0, le=1, description="of documents, rearranged (StarCoder: 0.5)")
    suffix_first: float = Field(
        default=0.5, ge=0, le=1, description="of these, with the suffix before the prefix (SPM), else PSM"
    )
    prefix_token: str = Field(default="<|fim_prefix|>", description="the tokenizer's token before a prefix")
    suffix_token: str = Field(default="<|fim_suffix|>", description="the tokenizer's token before a suffix")
    middle_token: str = Field(default="<|fim_middle|>", description="the tokenizer's token before a middle")

    @property
    def tokens(self) -> tuple[str, str, str]:
        return self.prefix_token, self.suffix_token, self.middle_token

    @model_validator(mode="after")
    def distinct(self) -> InfillConfig:
        if len(set(self.tokens)) < 3:
            raise ValueError(
                "prefix_token, suffix_token and middle_token must be three different tokens, are "
                + ", ".join(self.tokens)
            )
        return self


def check_sides(causal: bool, masking: MaskingConfig | None, others: Sequence[str]) -> None:
    """Refuse, by a `ValueError`, attention to both sides without masks and the reverse, and with `others`: keys of what is for models
    that predict the next token."""
    if causal and masking is not None:
        raise ValueError("data.masking: hidden tokens are seen from both sides: set model.causal to false")
    if not causal and masking is None:
        raise ValueError(
            "model.causal: false: a position would see the token that it predicts: set data.masking, or causal to true"
        )
    if not causal and others:
        raise ValueError(
            f"{others[0]}: is for models that predict the next token: leave it or data.masking out"
        )
