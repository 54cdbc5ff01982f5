"""`stats.json`: how well a tokenizer fits documents that it was not trained on (by source and language, each document decoded
again), what its vocabulary holds, and where its merges come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import WorkError
from corpusmill.common.hugging_face import library, read_given
from corpusmill.common.storage import Folder
from corpusmill.pipeline.bpe.encode import chunks, coming_back, encode, normalized
from corpusmill.pipeline.bpe.load import Bpe, load_bpe
from corpusmill.pipeline.engine.document_hash import hash_ids, purpose_seed, read_validation_groups, split_of
from corpusmill.pipeline.engine.stage import Context, Partition
from corpusmill.pipeline.tokenizer import merge_origins, vocabulary
from corpusmill.pipeline.tokenizer.sample import Drawn, below

load_other = lru_cache(maxsize=4)(library)


def token_counts(tokenizer: Any, texts: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """int64[texts]: tokens of each, no special token among them."""
    counts = [
        len(encoding.ids)
        for chunk in chunks(texts)
        for encoding in tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
    ]
    return np.array(counts, dtype=np.int64)


SAMPLE_BYTES = 1 << 20  # text per source
SUMS = ("docs", "bytes", "chars", "words", "tokens")
_TOP = 2**64 - 1
_WORD = r"[^\s\p{Z}\x0b\x1c-\x1f\x{85}]+"  # what Python's `str.split` gives
Key = tuple[str, str]  # source, language ("" where none was identified)


class Measured(NamedTuple):
    """Of one partition."""

    sums: dict[Key, npt.NDArray[np.int64]]  # in the order of `SUMS`, then tokens of the tokenizers compared
    counts: npt.NDArray[np.int64]  # of each token
    changed: list[str]  # documents that do not come back


class HeldOut(NamedTuple):
    """Of the whole sample; `splits`: source -> the split that it was measured on."""

    sums: dict[Key, npt.NDArray[np.int64]]
    counts: npt.NDArray[np.int64]
    splits: dict[str, str]


@dataclass(frozen=True)
class Measure:
    """Encode and decode the documents of a partition that are in the sample.

    `wanted`: source -> (split, highest hash of a sampled document).
    """

    split: Folder
    tokenizer: Folder
    eos_token: str
    others: tuple[str, ...]
    seed: int
    wanted: dict[str, tuple[str, int]]

    def __call__(self, partition: Partition) -> Measured:
        bpe = load_bpe(self.tokenizer.read(), self.eos_token, str(self.tokenizer))
        docs = partition.read(["doc_id", "source", "language", "cluster_id", "text"])
        validation = split_of(docs, read_validation_groups(self.split))
        hashes = hash_ids(docs["doc_id"], self.seed)
        mask = np.zeros(len(docs), dtype=bool)
        for split, side in (("validation", validation), ("train", ~validation)):
            tops = {source: top for source, (of, top) in self.wanted.items() if of == split}
            mask |= side & below(docs["source"], hashes, tops)
        docs = docs.filter(pa.array(mask))
        counts = np.zeros(bpe.vocab_size, dtype=np.int64)
        columns, changed = self._rows(bpe, docs, counts)
        keys = list(
            zip(docs["source"].to_pylist(), pc.fill_null(docs["language"], "").to_pylist(), strict=True)
        )
        sums: dict[Key, npt.NDArray[np.int64]] = {}
        for key in sorted(set(keys)):
            rows = np.array([one == key for one in keys])
            sums[key] = columns[:, rows].sum(axis=1)
        return Measured(sums, counts, changed)

    def _rows(
        self, bpe: Bpe, docs: pa.Table, counts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], list[str]]:
        """int64[sums, documents], and the ids of documents that do not come back."""
        texts = docs["text"]
        columns = np.zeros((len(SUMS) + len(self.others), len(docs)), dtype=np.int64)
        if len(docs) == 0:
            return columns, []
        columns[0] = 1
        columns[1] = pc.binary_length(texts).to_numpy()
        columns[2] = pc.utf8_length(texts).to_numpy()
        columns[3] = pc.count_substring_regex(texts, _WORD).to_numpy()
        plain = normalized(bpe, texts)
        ids, starts = encode(bpe, plain)
        columns[4] = np.diff(starts)
        counts += np.bincount(ids, minlength=bpe.vocab_size)
        same = coming_back(bpe, plain, ids, starts)
        for place, path in enumerate(self.others):
            other = load_other(read_given("tokenizer.compare", path), f"tokenizer.compare: {path}")
            columns[len(SUMS) + place] = token_counts(other, texts)
        lost = docs["doc_id"].filter(pa.array(~same)).to_pylist()
        return columns, [doc_id.hex() for doc_id in lost]


def measure_held_out(context: Context, bpe: Bpe, eos_token: str, splits: dict[str, Any]) -> HeldOut:
    """About `SAMPLE_BYTES` of each source's validation split (of train, where it has none), in the order of a hash of ids of its
    own: the same for any partitions. Raises `WorkError` if a document does not come back as it was."""
    seed = purpose_seed(context.recipe.seed, "measure")
    open_sources = {
        source: "validation" if numbers["validation"]["bytes"] else "train"
        for source, numbers in splits.items()
    }
    others = tuple(context.recipe.tokenizer.compare)
    result = HeldOut({}, np.zeros(bpe.vocab_size, dtype=np.int64), {})
    for attempt in range(2):  # where chance drew no document of a source, all of them are taken
        wanted = {}
        for source, split in open_sources.items():
            share = 1.0 if attempt else min(1.0, SAMPLE_BYTES / max(splits[source][split]["bytes"], 1))
            wanted[source] = (split, _TOP if share >= 1 else int(share * _TOP))
        if not wanted:
            break
        place = context.folder / "tokenizer.json"
        task = Measure(context.previous["split"], place, eos_token, others, seed, wanted)
        sizes = [part.text_bytes for part in context.partitions]
        parts = context.scheduler.map(task, context.partitions, "tokenizer: measure", sizes)
        changed = sorted(doc for part in parts for doc in part.changed)
        if changed:
            raise WorkError(
                f"tokenizer: {len(changed)} documents do not decode to their own text, first {changed[0]}"
            )
        for part in parts:
            result.counts[:] += part.counts
            for key, sums in part.sums.items():
                result.sums[key] = result.sums.get(key, 0) + sums
        for source in {source for source, _ in result.sums}:
            if source in open_sources:
                result.splits[source] = open_sources.pop(source)
    return result


def measure(
    context: Context, bpe: Bpe, eos_token: str, splits: dict[str, Any], drawn: Drawn
) -> dict[str, Any]:
    """By source and by language bytes per token, characters per token and fertility (tokens per white-space word: Rust et al.
    2021) on held-out documents (`measure_held_out`), each decoded again; the same for the tokenizers of `compare`; what the vocabulary
    holds (`vocabulary.py`), and from what lines its merges come (`merge_origins.py`). Unused are tokens that occur neither in the
    held-out documents nor in those of the sample that were looked at.

    Raises `WorkError` if a document came back changed.
    """
    found = measure_held_out(context, bpe, eos_token, splits)
    came = merge_origins.measure_origin(context, bpe, eos_token, drawn)
    words = vocabulary.vocabulary(bpe)
    there = words.there
    compare = list(context.recipe.tokenizer.compare)
    sources = {
        source: {"split": found.splits[source], **row}
        for source, row in _rows(found.sums, 0, compare).items()
    }
    languages = _rows({key: sums for key, sums in found.sums.items() if key[1]}, 1, compare)
    return {
        "vocab_size": bpe.vocab_size,
        "eos_token": eos_token,
        "eos_id": bpe.eos_id,
        "sources": sources,
        "languages": languages,
        "round_trip": {"docs": sum(row["docs"] for row in sources.values()), "changed": 0},
        **vocabulary.describe(words, (found.counts > 0) | (came.counts[0] > 0)),
        "unused": {
            "held_out": int((there & (found.counts == 0)).sum()),
            "trained_on": int((there & (came.counts[0] == 0)).sum()),
        },
        "origins": merge_origins.describe(came, words.merged, words.texts),
    }


def _rows(
    sums: dict[Key, npt.NDArray[np.int64]], by: int, compare: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Figures by source (`by` 0) or by language (1)."""
    rows = {}
    for name in sorted({key[by] for key in sums}):
        total = np.sum([row for key, row in sums.items() if key[by] == name], axis=0)
        numbers: dict[str, Any] = {what: int(n) for what, n in zip(SUMS, total, strict=False)}
        counts = max(numbers["tokens"], 1)
        numbers["bytes_per_token"] = round(numbers["bytes"] / counts, 4)
        numbers["chars_per_token"] = round(numbers["chars"] / counts, 4)
        numbers["fertility"] = round(numbers["tokens"] / max(numbers["words"], 1), 4)
        if compare:
            others = zip(compare, total[len(SUMS) :].tolist(), strict=True)
            numbers["compare"] = {
                path: {"tokens": n, "bytes_per_token": round(numbers["bytes"] / max(n, 1), 4)}
                for path, n in others
            }
        rows[name] = numbers
    return rows
