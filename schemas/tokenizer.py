"""The parameters of `tokenizer`, the statistics that it publishes, and the comparison of kinds of tokenizers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.manifest import MOST_MIB, Strict

Model = Literal["bpe", "unigram", "wordpiece"]
PreTokenizer = Literal["gpt2", "llama3", "gpt4o"]
Digits = Literal["as_pattern", "triples", "single"]
BYTES = 256  # the alphabet, always in the vocabulary


class TokenizerParams(Strict):
    """A byte-level tokenizer (BPE, Unigram or WordPiece), trained on the train split alone, or taken from a file; then measured."""

    model: Model = Field(
        default="bpe",
        exclude_if=lambda value: (
            value == "bpe"
        ),  # keys and records of runs are as they were before there was a choice
        description="bpe; unigram: the likeliest pieces; wordpiece: the longest piece first",
    )
    vocab_size: int = Field(
        default=32_000,
        ge=BYTES + 1,
        le=2**31,
        description="tokens, special ones and the 256 bytes among them",
    )
    vocab_multiple: int = Field(
        default=1, ge=1, le=65_536,
        description="vocab_size is rounded up to a multiple (64, 128: tensor cores) and trained for; reserved special"
        " tokens fill what the text has no merges for",
    )  # fmt: skip
    pre_tokenizer: PreTokenizer = Field(
        default="gpt4o", description="how text is split before merging: gpt2, llama3, gpt4o"
    )
    digits: Digits = Field(
        default="as_pattern",
        description="how numbers are split: as_pattern (gpt2: any length; llama3, gpt4o: threes), triples, single",
    )
    nfc: bool = Field(
        default=False, description="compose characters first (Unicode NFC); such text comes back composed"
    )
    special_tokens: list[str] = Field(default=[], description="special tokens besides the end of document")
    max_token_bytes: int | None = Field(
        default=None, ge=2, description="no merge makes a longer token (default: any length)"
    )
    path: str | None = Field(default=None, description="an existing tokenizer.json, instead of training")
    sample_mb: float = Field(default=256.0, gt=0, le=MOST_MIB, description="maximum training text, MiB")
    weights: dict[str, float] = Field(
        default={},
        description="shares of the sample by source, for every source (0 leaves one out); default: in proportion to their text",
    )
    min_frequency: int = Field(
        default=2, ge=1, description="pairs that occur less often are never merged (not for unigram)"
    )
    eos_token: str = Field(default="<|endoftext|>", description="written after every document")
    compare: list[str] = Field(
        default=[], description="other tokenizer.json files, measured on the same documents"
    )

    @property
    def size(self) -> int:
        """`vocab_size`, rounded up."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    @model_validator(mode="after")
    def _consistent(self) -> TokenizerParams:
        names = [self.eos_token, *self.special_tokens]
        if "" in names:
            raise ValueError("eos_token, special_tokens: must not be empty")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"special_tokens: '{twice[0]}' is named twice (eos_token is one of itself); leave one out"
            )
        alphabet = BYTES * (1 + (self.model == "wordpiece"))  # at the beginning of a word, and within one
        needed = alphabet + len(names)
        if self.path is None and self.vocab_size < needed:
            raise ValueError(
                f"vocab_size: {self.vocab_size} cannot hold the {alphabet} bytes and {len(names)} special tokens; at least {needed}"
            )
        if self.model == "wordpiece" and self.max_token_bytes is not None:
            raise ValueError(
                "max_token_bytes: training WordPiece knows no such limit; leave it out, or take bpe or unigram"
            )
        if any(not 0 <= weight < float("inf") for weight in self.weights.values()):
            raise ValueError("weights: must be 0 or more")
        if self.weights and not any(self.weights.values()):
            raise ValueError("weights: all are 0; at least one source must have a share")
        return self


class TokenizerStats(Strict):
    """`tokenizer/stats.json`: the tokenizer measured on the validation documents (or, of a source without any, on train)."""

    vocab_size: int
    special_tokens: int
    eos_token: str
    eos_id: int
    merged_tokens: int
    sources: dict[str, dict[str, Any]] = Field(
        description="source -> docs, words, chars, bytes, tokens and their rates"
    )
    languages: dict[str, dict[str, Any]]
    scripts: dict[str, int] = Field(description="script -> tokens of the vocabulary")
    round_trip: dict[str, Any] = Field(
        description="documents encoded and decoded again; `changed`: of another text"
    )
    longest_tokens: list[str]
    repetitions: dict[str, Any]
    unused: dict[str, int] = Field(
        description="tokens of the vocabulary that did not occur, by text looked at"
    )
    unused_tokens: int
    unused_longest: list[str]
    origins: dict[str, Any] = Field(
        description="merges that come from repeated lines and from the tags of `redact`"
    )
    trained_on: dict[str, Any]


Kind = Literal["bpe", "unigram", "wordpiece", "byte", "character", "word"]
HeldOut = Literal["validation", "hash", "train"]


class Fit(Strict):
    """One tokenizer on the held-out documents of a source, of a language, or on all of them."""

    docs: int
    bytes: int
    words: int = Field(description="by the word rule of deduplication")
    tokens: int = Field(description="without ends of documents")
    bytes_per_token: float
    fertility: float = Field(description="tokens per word; spaces and signs are tokens, or in them, too")
    whole_words: float = Field(description="share of the words that lie in one token")
    unknown_tokens: int
    unknown_bytes: int = Field(description="of text that unknown tokens stand for, and that is lost")


class SmallModel(Strict):
    """A small decoder, trained on the sample with one of the tokenizers."""

    bits_per_byte: float = Field(
        description="of the held-out text; ends of documents are scored, and have no bytes"
    )
    low: float | None = Field(description="95 % interval over documents")
    high: float | None
    flops: float = Field(description="of its training, forward and backward")
    steps: int
    tokens: int = Field(description="trained on")
    times: float = Field(description="how often each token of the sample was read")
    parameters: int


class Compared(Strict):
    """One of the tokenizers."""

    kind: Kind
    vocab_size: int = Field(
        description="tokens that it has, the end of a document and an unknown one among them"
    )
    used: int = Field(description="different tokens in the held-out documents")
    reversible: bool = Field(description="every held-out text comes back from its tokens, byte for byte")
    train_seconds: float
    encode_mb_per_second: float = Field(
        description="of held-out text, by one process: the median of three times"
    )
    whole: Fit
    sources: dict[str, Fit]
    languages: dict[str, Fit] = Field(description="of documents whose language was identified")
    model: SmallModel | None = Field(
        default=None, description="with `--train`, of tokenizers from whose tokens every text comes back"
    )


class ComparedSource(Strict):
    """What of a source the tokenizers were trained on, and measured on."""

    train_docs: int
    train_bytes: int
    held_out_docs: int
    held_out_bytes: int
    held_out: HeldOut = Field(
        description="validation: the run's own split; hash: of those that come first by a hash of their ids; train: the source has"
        " one document only"
    )


class TokenizerComparison(Strict):
    """`corpusmill tokenizer compare --json`: kinds of tokenizers, trained on one sample and measured on other documents."""

    version: Literal[1] = 1
    vocab_size: int = Field(description="that was asked for")
    seed: int
    sources: dict[str, ComparedSource]
    kinds: list[Compared]
