"""The token sets of the loader's benches: shard sets of random tokens, and the same tokens as rows for the peers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SEQUENCE, BATCH, BLOCK = 2048, 32, 2**19
SOURCES, TARS, BLOCKS = ("a", "b"), 2, 16  # tars of a source, blocks of a tar
DOCUMENT = 700  # tokens, on average


def write_set(
    root: Path,
    vocabulary: int = 50_000,
    blocks: int = BLOCKS,
    tars: int = TARS,
    sources: Sequence[str] = SOURCES,
    rows: Path | None = None,
) -> str:
    """A shard set of random tokens in documents (uint16), written by the code of `corpusmill shard`.

    The folder `rows` gets `<source>.npy`, uint16 [sequences, SEQUENCE + 1]: the sequences of the set, each with its last
    label, in their order. Returns `root` as text.
    """
    from corpusmill.common.ids import checksum
    from corpusmill.schemas.shards import ShardIndex, ShardSet, ShardSetEntry

    rng, tokenizer, entries = np.random.default_rng(0), b"{}", []
    (root / "tokenizer.json").write_bytes(tokenizer)
    known = {"vocab_size": vocabulary, "eos_id": 0, "dtype": "uint16", "tokenizer_xxh3": checksum(tokenizer)}
    for source in sources:
        folder = root / source / "train"
        folder.mkdir(parents=True)
        made = [_write_tar(folder, f"{source}-train-{n:06d}", vocabulary, blocks, rng) for n in range(tars)]
        shards = [shard for shard, _ in made]
        if rows:
            np.save(rows / f"{source}.npy", np.concatenate([cut(tokens) for _, tokens in made]))
        totals = {key: sum(getattr(s, key) for s in shards) for key in ShardIndex.TOTALS}
        index = ShardIndex.model_validate(
            {"name": f"{source}-train", "source": source, "split": "train", "tokenizer": "../../tokenizer.json",
             "block_tokens": BLOCK, "shardlist": shards, **known, **totals}
        ).model_dump_json().encode()  # fmt: skip
        (folder / "index.json").write_bytes(index)
        place = f"{source}/train/index.json"
        entries.append(
            ShardSetEntry(source=source, split="train", index=place, index_xxh3=checksum(index), **totals)
        )
    whole = ShardSet.model_validate({"tokenizer": "tokenizer.json", "sets": entries, **known})
    (root / "index.json").write_text(whole.model_dump_json())
    return str(root)


def cut(tokens: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """The sequences of whole blocks, [sequences, SEQUENCE + 1]: no sequence reaches over a block's end."""
    windows = np.lib.stride_tricks.sliding_window_view(tokens.reshape(-1, BLOCK), SEQUENCE + 1, axis=1)
    return windows[:, ::SEQUENCE].reshape(-1, SEQUENCE + 1)


def _write_tar(
    folder: Path, stem: str, vocabulary: int, blocks: int, rng: np.random.Generator
) -> tuple[Any, npt.NDArray[np.uint16]]:
    """(the tar's entry in the index, its tokens)"""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.bpe.load import Bpe
    from corpusmill.pipeline.shard.segments import Window
    from corpusmill.pipeline.shard.write import write_blocks

    tables: dict[str, Any] = {
        **dict.fromkeys(Bpe._fields), "eos_id": 0, "vocab_size": vocabulary,
        "lead_bytes": np.full(vocabulary, 4, np.int32), "byte_lengths": np.full(vocabulary, 4, np.int32),
        "inside": np.zeros(vocabulary, bool),
    }  # fmt: skip
    size = blocks * BLOCK
    tokens = rng.integers(1, vocabulary, size, dtype=np.uint16)
    inner = rng.choice(size - 1, size // DOCUMENT, replace=False, shuffle=False) + 1
    offsets = np.concatenate([[0], np.sort(inner), [size]])
    ids = rng.integers(0, 256, (len(offsets) - 1, 16), dtype=np.uint8)
    with (Folder(folder) / f"{stem}.tar").create() as sink:
        made = write_blocks([Window(ids, tokens, offsets, 4 * size)], Bpe(**tables), stem, BLOCK, sink)
    (folder / f"{stem}.tar.idx").write_bytes(made.sidecar)
    return made.shard, tokens
