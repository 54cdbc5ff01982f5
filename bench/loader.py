"""The loader: tokens/s of StreamingTokens beside webdataset over the same tars, in the same run."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

SEQUENCE, BATCH, BLOCK, BLOCKS, TARS, SOURCES = 2048, 32, 2**19, 16, 2, ("a", "b")


def write_set(root: Path, vocabulary: int = 50_000, blocks: int = BLOCKS) -> str:
    """A shard set of random tokens (uint16), as `corpusmill shard` lays it out."""
    from schemas.ids import checksum
    from schemas.shards import Block, Shard, ShardIndex, ShardSet, ShardSetEntry

    rng = np.random.default_rng(0)
    entries = []
    (root / "tokenizer.json").write_bytes(b"{}")
    for source in SOURCES:
        folder = root / source / "train"
        folder.mkdir(parents=True)
        shards = []
        for number in range(TARS):
            path, table = folder / f"{source}-train-{number:06d}.tar", []
            with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
                for block in range(blocks):
                    tokens = rng.integers(1, vocabulary, BLOCK).astype(np.uint16)
                    starts = np.unique(np.concatenate([[0], rng.integers(0, BLOCK, BLOCK // 700)])).astype(
                        np.uint32
                    )
                    key, places, payloads = f"{source}-{number:06d}-{block:06d}", {}, {}
                    for name, value in (("tokens.npy", tokens), ("docs.npy", starts)):
                        buffer = io.BytesIO()
                        np.save(buffer, value)
                        payloads[name] = buffer.getvalue()
                    payloads["json"] = json.dumps({"doc_ids": []}).encode()
                    for name, payload in payloads.items():
                        info = tarfile.TarInfo(f"{key}.{name}")
                        info.size = len(payload)
                        places[name] = tar.offset + 512
                        tar.addfile(info, io.BytesIO(payload))
                    size = {name: len(payload) for name, payload in payloads.items()}
                    xxh3 = {name: checksum(payload) for name, payload in payloads.items()}
                    table.append(
                        Block(
                            key=key, ntokens=BLOCK, ndocs=len(starts), header=size["tokens.npy"] - 2 * BLOCK,
                            offset=places["tokens.npy"], size=size["tokens.npy"], xxh3=xxh3["tokens.npy"],
                            docs_offset=places["docs.npy"], docs_size=size["docs.npy"], docs_xxh3=xxh3["docs.npy"],
                            json_offset=places["json"], json_size=size["json"], json_xxh3=xxh3["json"],
                        )
                    )  # fmt: skip
            data = path.read_bytes()
            shards.append(
                Shard(
                    url=path.name, nsamples=blocks, filesize=len(data), sha256=hashlib.sha256(data).hexdigest(),
                    ntokens=blocks * BLOCK, ndocs=sum(b.ndocs for b in table), text_bytes=0, blocks=table,
                )
            )  # fmt: skip
        total = TARS * blocks * BLOCK
        index = ShardIndex(
            name=f"{source}-train", source=source, split="train", dtype="uint16", vocab_size=vocabulary, eos_id=0,
            tokenizer="../../tokenizer.json", tokenizer_xxh3="", block_tokens=BLOCK, ntokens=total,
            ndocs=sum(s.ndocs for s in shards), text_bytes=0, shardlist=shards,
        ).model_dump_json().encode()  # fmt: skip
        (folder / "index.json").write_bytes(index)
        entries.append(
            ShardSetEntry(
                source=source, split="train", index=f"{source}/train/index.json", index_xxh3=checksum(index),
                ntokens=total, ndocs=1, text_bytes=0,
            )
        )  # fmt: skip
    whole = ShardSet(
        tokenizer="tokenizer.json",
        tokenizer_xxh3="",
        vocab_size=vocabulary,
        eos_id=0,
        dtype="uint16",
        sets=entries,
    )
    (root / "index.json").write_text(whole.model_dump_json())
    return str(root)


def ours(root: str) -> Iterator[Any]:
    """Batches of our stream: an exact mixture, checked blocks, document boundaries."""
    from train.data import StreamingTokens

    with StreamingTokens(root, sequence_length=SEQUENCE, global_batch=BATCH, prefetch=4) as stream:
        while True:
            batch = next(stream)
            yield batch["tokens"], batch["labels"]


def peer(root: str) -> Iterator[Any]:
    """Batches of the same shape from webdataset: mixed tars, shuffle buffer of sequences, no checks, no boundaries."""
    import torch
    import webdataset as wds

    def cut(samples: Iterator[dict[str, Any]]) -> Iterator[np.ndarray]:
        for sample in samples:
            tokens = sample["tokens.npy"]
            for start in range(0, len(tokens) - SEQUENCE, SEQUENCE):
                yield tokens[start : start + SEQUENCE + 1]

    sources = [
        wds.WebDataset(
            sorted(map(str, Path(root, s, "train").glob("*.tar"))), resampled=True, shardshuffle=False
        )
        .decode()
        .compose(cut)
        for s in SOURCES
    ]
    mixed = iter(wds.DataPipeline(wds.RandomMix(sources, [0.5, 0.5]), wds.shuffle(1000)))
    while True:
        rows = np.stack([next(mixed) for _ in range(BATCH)]).astype(np.int64)
        yield torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())


def speed(loader: Callable[[str], Iterator[Any]], root: str, seconds: float) -> float:
    """Tokens/s after ten batches of warming up."""
    batches = loader(root)
    for _ in range(10):
        next(batches)
    tokens, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        tokens += next(batches)[0].numel()
    rate = tokens / (time.perf_counter() - began)
    batches.close()  # type: ignore[attr-defined]
    return rate


def measure(seconds: float = 4.0) -> dict[str, Any]:
    """Best of two rounds each, in turn, so that a busy machine harms both alike."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_set(Path(folder))
        rounds = [(speed(ours, root, seconds), speed(peer, root, seconds)) for _ in range(2)]
        from train.data import StreamingTokens

        began = time.perf_counter()
        with StreamingTokens(root, sequence_length=SEQUENCE, global_batch=BATCH) as stream:
            state = {**stream.state_dict(), "n": BATCH * 1_000_000}
            stream.load_state_dict(state)
            next(stream)
        resume = time.perf_counter() - began
    mine, theirs = max(a for a, _ in rounds), max(b for _, b in rounds)
    return {
        "tokens_per_second": mine,
        "webdataset_tokens_per_second": theirs,
        "ratio": mine / theirs,
        "resume": resume,
    }


def main() -> None:
    found = measure()
    total = len(SOURCES) * TARS * BLOCKS * BLOCK
    print(
        f"{total / 1e6:.0f} M tokens in {len(SOURCES) * TARS} local tars, {BATCH} sequences of {SEQUENCE}, one process;"
        " ours checks every block, marks documents and mixes exactly.\n"
    )
    print("| loader | M tokens/s | times |\n|---|---:|---:|")
    print(f"| StreamingTokens | {found['tokens_per_second'] / 1e6:.1f} | {found['ratio']:.2f} |")
    print(f"| webdataset, shuffle buffer | {found['webdataset_tokens_per_second'] / 1e6:.1f} | 1.00 |")
    print(f"\nOpening the set and the first batch at step 1,000,000: {found['resume']:.2f} s.")


if __name__ == "__main__":
    main()
