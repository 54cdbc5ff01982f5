"""How well a tokenizer fits: per source on documents that it was not trained on, each decoded again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.bpe.encode import encode
from pipeline.bpe.load import Bpe, decode, load_bpe
from pipeline.splits import hash_ids, purpose_seed, read_validation_groups, split_of
from pipeline.stage import Context, Partition
from schemas.errors import WorkError
from schemas.storage import Folder

SAMPLE_BYTES = 1 << 20  # text per source
_TOP = 2**64 - 1
_SUMS = ("docs", "bytes", "chars", "words", "tokens")


class Measured(NamedTuple):
    """Of one partition: sums per source, the tokens that occurred, and documents that came back changed."""

    sums: dict[str, npt.NDArray[np.int64]]  # in the order of `_SUMS`
    used: npt.NDArray[np.bool_]
    changed: list[str]


@dataclass(frozen=True)
class Measure:
    """Encode and decode the documents of a partition that are in the sample.

    `wanted`: source -> (split, highest hash of a sampled document).
    """

    split: Folder
    tokenizer: Folder
    eos_token: str
    seed: int
    wanted: dict[str, tuple[str, int]]

    def __call__(self, partition: Partition) -> Measured:
        bpe = load_bpe(self.tokenizer.read(), self.eos_token, str(self.tokenizer))
        docs = partition.read(["doc_id", "source", "cluster_id", "text"])
        validation = split_of(docs, read_validation_groups(self.split))
        hashes = hash_ids(docs["doc_id"], self.seed)
        result = Measured({}, np.zeros(bpe.vocab_size, dtype=bool), [])
        for source in pc.unique(docs["source"]).sort().to_pylist():
            if source not in self.wanted:
                continue
            split, top = self.wanted[source]
            mask = pc.equal(docs["source"], source).to_numpy() & (hashes <= np.uint64(top))
            mask &= validation if split == "validation" else ~validation
            self._one(bpe, docs.filter(pa.array(mask)), source, result)
        return result

    def _one(self, bpe: Bpe, docs: pa.Table, source: str, result: Measured) -> None:
        if len(docs) == 0:
            return
        ids, offsets = encode(bpe, docs["text"])
        result.used[np.unique(ids)] = True
        words = 0
        for row, (doc_id, text) in enumerate(
            zip(docs["doc_id"].to_pylist(), docs["text"].to_pylist(), strict=True)
        ):
            words += len(text.split())
            if decode(bpe.tokenizer, ids[offsets[row] : offsets[row + 1]].tolist()) != text:
                result.changed.append(doc_id.hex())
        chars, size = (
            pc.sum(pc.utf8_length(docs["text"])).as_py(),
            pc.sum(pc.binary_length(docs["text"])).as_py(),
        )
        result.sums[source] = np.array([len(docs), size, chars, words, len(ids)], dtype=np.int64)


def measure(context: Context, bpe: Bpe, eos_token: str, splits: dict[str, Any]) -> dict[str, Any]:
    """`stats.json`: per source bytes per token and fertility (tokens per white-space word) on about
    `SAMPLE_BYTES` of its validation split (of train, and said so, where it has none), tokens that occur in
    none of these documents, and the round trip of every one. Raises `WorkError` if one came back changed."""
    seed = purpose_seed(context.recipe.seed, "measure")
    open_sources = {
        source: "validation" if numbers["validation"]["bytes"] else "train"
        for source, numbers in splits.items()
    }
    used = np.zeros(bpe.vocab_size, dtype=bool)
    sources: dict[str, dict[str, Any]] = {}
    for attempt in range(2):  # where chance drew no document of a source, all of them are taken
        wanted = {}
        for source, split in open_sources.items():
            share = 1.0 if attempt else min(1.0, SAMPLE_BYTES / max(splits[source][split]["bytes"], 1))
            wanted[source] = (split, _TOP if share >= 1 else int(share * _TOP))
        if not wanted:
            break
        task = Measure(context.previous["split"], context.folder / "tokenizer.json", eos_token, seed, wanted)
        sizes = [part.text_bytes for part in context.partitions]
        parts = context.scheduler.map(task, context.partitions, "tokenizer: measure", sizes)
        changed = sorted(doc for part in parts for doc in part.changed)
        if changed:
            raise WorkError(
                f"tokenizer: {len(changed)} documents do not decode to their own text, first {changed[0]}"
            )
        for part in parts:
            used |= part.used
        for source in wanted:
            total = sum(
                (part.sums[source] for part in parts if source in part.sums), np.zeros(len(_SUMS), np.int64)
            )
            if total[0]:
                numbers = {name: int(value) for name, value in zip(_SUMS, total, strict=True)}
                sources[source] = {"split": open_sources.pop(source), **numbers, **_ratios(numbers)}
    special = np.zeros(bpe.vocab_size, dtype=bool)
    special[bpe.eos_id] = True
    vocabulary = bpe.tokenizer.get_vocab(with_added_tokens=True)
    longest = sorted(vocabulary, key=lambda token: (-int(bpe.byte_lengths[vocabulary[token]]), token))[:20]
    return {
        "vocab_size": bpe.vocab_size,
        "eos_token": eos_token,
        "eos_id": bpe.eos_id,
        "sources": dict(sorted(sources.items())),
        "unused_tokens": int((~used & ~special).sum()),
        "round_trip": {"docs": sum(numbers["docs"] for numbers in sources.values()), "changed": 0},
        "longest_tokens": [decode(bpe.tokenizer, [vocabulary[token]]) for token in longest],
    }


def _ratios(numbers: dict[str, int]) -> dict[str, float]:
    return {
        "bytes_per_token": round(numbers["bytes"] / max(numbers["tokens"], 1), 4),
        "fertility": round(numbers["tokens"] / max(numbers["words"], 1), 4),
    }
