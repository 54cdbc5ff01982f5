"""`evaluation/glitch-tokens.json` of a run: tokens that its training hardly touched."""

from __future__ import annotations

from pydantic import Field

from corpusmill.schemas.manifest import Strict

GLITCH_TOKENS = "evaluation/glitch-tokens.json"


class Place(Strict):
    """A document of the train split that holds a token."""

    source: str
    doc_id: str = Field(description="hex; `corpusmill why` and `trace` take it")
    block: str


class GlitchToken(Strict):
    """A token and what is known of it."""

    token: int
    text: str = Field(description="that it stands for; bytes that are no UTF-8 as \\xNN")
    reachable: bool = Field(description="whether the tokenizer makes it of its own text")
    train: int = Field(description="occurrences in the train splits of the sources that the run reads")
    seen: int = Field(description="of them those that the run was trained on, each once")
    input_norm: float = Field(description="L2 norm of its row of the embedding")
    output_norm: float | None = Field(
        default=None, description="of its row of the head; null with tied embeddings"
    )
    distance: float | None = Field(
        description="cosine distance of its output row, without the common component, to the mean of untouched ones; null without"
        " those"
    )
    repeat: float = Field(
        description="highest probability with which the model repeats it after 4, 8 and 16 times"
    )
    repeats: bool = Field(description="whether that is at least 0.01")
    documents: list[Place] = Field(default=[], description="some of those that hold it")


class GlitchTokens(Strict):
    """The whole file."""

    name: str = Field(description="of the run")
    step: int
    weights_hash: str
    tokenizer_hash: str
    tied: bool = Field(description="whether input and output share their rows")
    vocabulary: int
    most_seen: int = Field(description="`tokens` are those seen at most so often")
    counted: int = Field(description="tokens that the run was trained on and that were counted")
    trained: int = Field(
        description="tokens that the run was trained on, each once; more than `counted`: estimated"
    )
    tokens: list[GlitchToken]
    suspects: list[GlitchToken] = Field(
        description="seen more often, with an output row as near to the untouched ones as 95 % of those are"
    )
    ordinary_repeat: float = Field(
        description="median `repeat` of the most frequent tokens: where it is low, repeating says nothing"
    )
    finding: str
