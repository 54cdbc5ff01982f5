"""Contract 5: the shard set. WebDataset tars per source and split, described by one `index.json`.

`index.json` is a superset of the wids v1 shard index: its readers need `shardlist` entries with `url`,
`nsamples` and `filesize`; ours add tokens, documents, checksums and a table of blocks, so that a loader
fetches one block with one range request and checks it.

A tar (USTAR, fixed mtime and owner) holds, per block, three members with the key
`<source>-<split>-<shard>-<block>`, unique over the data set (no dots in keys): `.tokens.npy` (uint16 or uint32,
one flat array), `.docs.npy` (uint32 starts of the documents in that array) and `.json` (`BlockDocuments`). Sets
written before version 2 of the stage have keys without the split; nothing reads a key's parts. Sets made from
conversations have a fourth, `.targets.npy` (uint8, a `Target` for each token), and lie packed in rows of a fixed length.

Text shards (`shard.format: text | both`) lie beside them, in `<source>/<split>-text/`, with a `TextIndex`: a
document a sample, its key the `doc_id` in hex, with the members `.txt` (the text, UTF-8) and `.json`
(`TextDocument`).

What was taken out of a shard set stands beside its `index.json`, in `takedowns.jsonl`: a `Takedown` a line.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from corpusmill.schemas.manifest import MOST_MIB, Strict


class ShardFormat(StrEnum):
    """What a sample of the tars is."""

    tokens = "tokens"
    text = "text"
    both = "both"


class ShardParams(Strict):
    """WebDataset tars of token blocks, of documents as text, or of both, per source and split."""

    format: ShardFormat = Field(
        default=ShardFormat.tokens,
        description="`tokens`: blocks of token ids; `text`: one document per sample, .txt and .json; `both`: both, separately",
    )
    block_tokens: int = Field(default=2**19, ge=64, description="tokens in a block: 1 MiB as uint16")
    shard_mb: float = Field(default=256.0, gt=0, le=MOST_MIB, description="wanted size of a tar, MiB")


INDEX = "index.json"
TAKEDOWNS = "takedowns.jsonl"  # beside the index of a shard set


class Target(IntEnum):
    """What training does with a token, as `.targets.npy` has it."""

    context = 0  # it is read, and never a label
    answer = 1  # a label; of a preference, of the chosen or desirable answer
    rejected = 2  # of the rejected or undesirable answer of a preference
    unrelated = 3  # of an answer to another prompt, which is compared and not trained on


class TargetMember(Strict):
    """Where `.targets.npy` of a block is."""

    offset: int = Field(ge=0, description="bytes from the start of the tar to the payload")
    size: int = Field(ge=0, description="bytes of that payload, the .npy header included")
    xxh3: str = Field(description="xxh3_128 of the payload")


def _none(value: object) -> bool:
    return value is None


class Block(Strict):
    """One block of tokens in a tar, addressable by a range request."""

    key: str = Field(pattern=r"^[^./]+$", description="<source>-<split>-<shard>-<block>")
    offset: int = Field(ge=0, description="bytes from the start of the tar to the payload of .tokens.npy")
    size: int = Field(ge=0, description="bytes of that payload, the .npy header included")
    header: int = Field(ge=0, description="bytes of the .npy header; tokens start at offset + header")
    xxh3: str = Field(description="xxh3_128 of the payload")
    docs_offset: int = Field(ge=0, description="the same for .docs.npy")
    docs_size: int = Field(ge=0)
    docs_xxh3: str
    json_offset: int = Field(ge=0, description="the same for .json")
    json_size: int = Field(ge=0)
    json_xxh3: str
    ntokens: int = Field(ge=0)
    ndocs: int = Field(ge=0, description="documents that have tokens in this block")
    targets: TargetMember | None = Field(
        default=None, exclude_if=_none, description="of .targets.npy; left out: every token is a label"
    )


class Shard(Strict):
    """One tar. `url` is relative to the index."""

    url: str
    nsamples: int = Field(ge=0, description="blocks in the tar")
    filesize: int = Field(ge=0)
    sha256: str
    ntokens: int = Field(ge=0)
    ndocs: int = Field(ge=0, description="documents that start in this tar")
    text_bytes: int = Field(ge=0, description="UTF-8 bytes of text behind the tokens: for bits per byte")
    blocks: list[Block]


class WidsIndex(Strict):
    """What the index of any (source, split) begins with: it is a wids v1 index as well."""

    TOTALS: ClassVar[tuple[str, ...]] = (
        "ndocs",
        "text_bytes",
    )  # sums over its tars; its line in the set says them too

    # The key that wids readers know the format by; pydantic fields cannot begin with '_'.
    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, populate_by_name=True, serialize_by_alias=True
    )

    kind: Literal["wids-shard-index-v1"] = Field(default="wids-shard-index-v1", alias="__kind__")
    wids_version: Literal[1] = 1
    name: str = Field(description="<source>-<split>, of text shards <source>-<split>-text")
    source: str
    split: Literal["train", "validation"]

    @classmethod
    def totals(cls, shards: Iterable[Shard | TextShard]) -> dict[str, int]:
        """The totals over all its tars, by name."""
        shards = list(shards)
        return {name: sum(getattr(shard, name) for shard in shards) for name in cls.TOTALS}


class ShardIndex(WidsIndex):
    """`index.json` of one (source, split): read it, and nothing needs listing or guessing."""

    TOTALS: ClassVar[tuple[str, ...]] = ("ndocs", "text_bytes", "ntokens")

    dtype: Literal["uint16", "uint32"]
    vocab_size: int = Field(gt=0)
    eos_id: int = Field(ge=0, description="token written after every document")
    tokenizer: str = Field(description="path of tokenizer.json, relative to the index")
    tokenizer_xxh3: str
    block_tokens: int = Field(gt=0, description="tokens in every block but the last of a tar")
    row_tokens: int | None = Field(
        default=None, exclude_if=_none,
        description="blocks are one end-of-document token and rows of this length, each of whole documents",
    )  # fmt: skip
    ntargets: int | None = Field(
        default=None,
        ge=0,
        exclude_if=_none,
        description="tokens of answers that are wanted; left out: all are labels",
    )
    ntokens: int = Field(ge=0)
    ndocs: int = Field(ge=0)
    text_bytes: int = Field(
        ge=0, description="of text; of wanted answers alone, if not every token is a label"
    )
    shardlist: list[Shard]

    @property
    def scored(self) -> int:
        """Tokens that are scored when it is evaluated."""
        return self.ntokens if self.ntargets is None else self.ntargets


class BlockDocuments(Strict):
    """The `.json` member: which characters of which documents the block's tokens stand for.

    Lists of equal length, one entry per document segment, in token order. A document longer than a block
    goes on in the next one with `char_start` > 0.
    """

    doc_ids: list[str] = Field(description="hex")
    token_starts: list[int] = Field(description="the same numbers as .docs.npy")
    char_starts: list[int] = Field(description="first character, in the cleaned text")
    char_ends: list[int] = Field(description="one past the last character")


class TextShard(Strict):
    """One tar of documents as text. `url` is relative to the index."""

    url: str
    nsamples: int = Field(ge=0, description="documents in the tar")
    filesize: int = Field(ge=0)
    sha256: str
    ndocs: int = Field(ge=0, description="the same as nsamples")
    text_bytes: int = Field(ge=0, description="UTF-8 bytes of the .txt members")


class TextIndex(WidsIndex):
    """`index.json` of the text shards of one (source, split)."""

    ndocs: int = Field(ge=0)
    text_bytes: int = Field(ge=0)
    shardlist: list[TextShard]


Index = ShardIndex | TextIndex


class TextDocument(Strict):
    """The `.json` member of a text shard. Every field is a string in every sample, empty where the document has no
    such value: readers that infer one type for a data set (Hugging Face) refuse anything else."""

    doc_id: str = Field(description="hex; also the sample's key")
    source: str
    source_id: str
    locator: str
    url: str
    date: str
    language: str
    metadata: str = Field(description="a JSON object, as text")
    text_hash: str = Field(description="hex: xxh3_128 of the text")
    cluster_id: str = Field(description="hex")


class SetEntry(Strict):
    """One line of the set: where the index of a (source, split) lies."""

    source: str
    split: Literal["train", "validation"]
    index: str = Field(description="path of its index.json, relative to the shard set")
    index_xxh3: str

    @property
    def place(self) -> str:
        """The folder of its index, relative to the shard set."""
        return self.index.rpartition("/")[0]

    def path(self, url: str) -> str:
        """A file that its index names, relative to the shard set."""
        return f"{self.place}/{url}".lstrip("/")


class TextSetEntry(SetEntry):
    """Where the index of the text shards of a (source, split) lies, and its totals."""

    ndocs: int = Field(ge=0)
    text_bytes: int = Field(ge=0)


class ShardSetEntry(SetEntry):
    """One line of the set: where the index of a (source, split) lies, and its totals."""

    ntokens: int = Field(ge=0)
    ndocs: int = Field(ge=0)
    text_bytes: int = Field(ge=0)


class ShardSet(Strict):
    """`shards/index.json`: every (source, split) of a run. What a training config points at."""

    kind: Literal["corpusmill-shard-set-v1"] = "corpusmill-shard-set-v1"
    tokenizer: str
    tokenizer_xxh3: str
    vocab_size: int
    eos_id: int
    dtype: Literal["uint16", "uint32"]
    sets: list[ShardSetEntry] = Field(description="token shards; empty for `format: text`")
    texts: list[TextSetEntry] = Field(default=[], description="text shards, if written")

    @property
    def entries(self) -> list[ShardSetEntry | TextSetEntry]:
        """Tokens, then texts."""
        return [*self.sets, *self.texts]


def set_entry(index: Index, path: str, xxh3: str) -> SetEntry:
    """The line of the set for an index that is published at `path`."""
    model = ShardSetEntry if isinstance(index, ShardIndex) else TextSetEntry
    named = {"source": index.source, "split": index.split, "index": path, "index_xxh3": xxh3}
    return model.model_validate(named | {name: getattr(index, name) for name in index.TOTALS})


class Takedown(Strict):
    """A line of `takedowns.jsonl`. No text, and nothing of what named the documents but their ids."""

    request: str = Field(description="hash of the ids")
    time: str = Field(description="UTC, when it was prepared; part of no hash")
    doc_ids: list[str] = Field(description="hex, sorted")
    shards: list[str] = Field(description="the tars that held them, as they were named then")
    tokens: int = Field(ge=0, description="tokens that went, ends of documents included")
