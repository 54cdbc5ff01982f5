"""How conversations become rows of tokens (`data.conversations`), and what was made of them."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import Strict

TEMPLATE = (
    "chat_template.jinja"  # beside a tokenizer: how a model reads conversations, as transformers has it
)
SUMMARY = "conversations.json"

TrainOn = Literal["assistant", "last"]
RowFormat = Literal["messages", "sharegpt", "alpaca", "completion", "preference", "feedback", "text"]


LineField = Literal["source_id", "url", "date", "language", "metadata"]


class ConversationsParams(Strict):
    """Kept conversations as lines of JSON for a fine-tuning, train and validation apart."""

    fields: list[LineField] = Field(
        default=list(get_args(LineField)),
        description="what a line has besides the conversation, its doc_id, source and licence, where it is known",
    )


class ConversationConfig(Strict):
    """Lines of JSON as rows to train on, of which only answers are labels.

    A line is one of: `messages` (role and content), ShareGPT's `conversations` (from and value), Alpaca's `instruction`, `input`
    and `output`, `prompt` and `completion`, `prompt`, `chosen` and `rejected`, `prompt`, `completion` and `label`, or `text`.
    """

    template: str | None = Field(
        default=None,
        description="chat template: a file, or a shipped one (chatml, plain); default: that of the model in init_from, else plain",
    )
    train_on: TrainOn = Field(
        default="assistant", description="answers that are labels: all of the assistant's, or the last one"
    )
    system: str | None = Field(
        default=None, description="system prompt of conversations that have none of their own"
    )
    style: str | None = Field(
        default=None, description="a style guide (YAML), whose rules become that system prompt"
    )
    validation_share: float = Field(
        default=0.05,
        ge=0,
        lt=1,
        description="of conversations, held out by a hash of their first message; 0: none",
    )

    @model_validator(mode="after")
    def one_system(self) -> ConversationConfig:
        if self.system is not None and self.style is not None:
            raise ValueError("system and style exclude each other: a style guide has a prompt of its own")
        return self


class ConversationSource(Strict):
    """What became of the lines of one source. lines = kept + quarantined."""

    lines: int = Field(ge=0)
    formats: dict[str, int] = Field(description="lines of each format")
    kept: int = Field(ge=0)
    quarantined: dict[str, int] = Field(description="lines that are in no row, by reason")
    shortened: int = Field(ge=0, description="conversations that lost their oldest turns, to fit into a row")
    documents: int = Field(ge=0, description="a preference is two, a long text several")
    rows: int = Field(ge=0)
    tokens: int = Field(ge=0, description="of documents, without padding")
    labels: int = Field(ge=0, description="tokens that are trained on")


class Conversations(Strict):
    """`conversations.json` beside a shard set that was made of conversations."""

    kind: Literal["corpusmill-conversations-v1"] = "corpusmill-conversations-v1"
    template: str = Field(description="name or file of the chat template")
    marked: bool = Field(
        description="the template marks answers itself ({% generation %}); if not, they are found by rendering the turns before them"
    )
    row_tokens: int = Field(ge=2)
    sources: dict[str, ConversationSource]
