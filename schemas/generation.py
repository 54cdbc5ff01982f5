"""How the tokens of a text are chosen: the options of `generate`, `chat` and `serve`."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.manifest import Strict

# Below it, logits over the temperature would leave the range of float32.
COLDEST = 1e-5


class Sampling(Strict):
    """Of one text. Filters apply in the order in which they are listed here, each to what the one before it has left."""

    max_tokens: int = Field(default=100, ge=1, description="tokens after the prompt, at most")
    repetition_penalty: float = Field(
        default=1.0,
        ge=0.01,
        le=100,
        description="logits of tokens of the prompt or the text are divided by it, negative ones multiplied; 1: none",
    )
    presence_penalty: float = Field(
        default=0.0, ge=-2, le=2, description="taken from the logit of each token that the text has"
    )
    frequency_penalty: float = Field(
        default=0.0, ge=-2, le=2, description="taken from it for each time that the text has it"
    )
    logit_bias: dict[int, float] = Field(default={}, description="token id: what is added to its logit")
    temperature: float = Field(
        default=0.8,
        ge=0,
        description=f"divides the logits; 0 (and all below {COLDEST:g}): the likeliest token",
    )
    top_k: int = Field(default=50, ge=0, description="the likeliest tokens that stay; 0: all")
    top_p: float = Field(
        default=0.95, gt=0, le=1, description="the fewest likeliest tokens whose probabilities sum to it stay"
    )
    min_p: float = Field(
        default=0.0, ge=0, lt=1, description="share of the highest probability that a token must have"
    )
    typical_p: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="the fewest tokens of the most typical information whose probabilities sum to it stay",
    )
    stop: list[str] = Field(default=[], max_length=16, description="texts before which it ends")
    seed: int = Field(default=0, ge=0, lt=2**63)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always chosen."""
        return self.temperature < COLDEST
