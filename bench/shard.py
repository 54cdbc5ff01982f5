"""Shards: MB/s per core of training a tokenizer, encoding, writing tars, both phases together, and verifying."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "natural"
TEXT_BYTES = 6_000_000
TOKENS = 32_000_000  # for writing alone: 64 MB as uint16


def corpus() -> list[str]:
    """Books in pieces of about 4 kB, `TEXT_BYTES` of them."""
    pieces: list[str] = []
    size = 0
    files = sorted((DATA / "books_gutenberg").glob("*.md"))
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        for start in range(0, len(text), 4000):
            piece = text[start : start + 4000]
            pieces.append(piece)
            size += len(piece.encode())
            if size >= TEXT_BYTES:
                return pieces
    return pieces


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """A result, and the CPU seconds of this process that it took."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def measure() -> dict[str, dict[str, float]]:
    """Name -> MB of input (text, or tokens where said) and CPU seconds. Empty without text."""
    from bench.redact import table
    from pipeline.bpe.encode import encode
    from pipeline.bpe.load import load_bpe
    from pipeline.cluster import Workers
    from pipeline.progress import Progress
    from pipeline.publish import publish_table
    from pipeline.shard.stage import Shards
    from pipeline.shard.verify import verify_shards
    from pipeline.shard.write import build
    from pipeline.split.stage import Split
    from pipeline.stage import Context, Partition
    from pipeline.tokenizer.stage import Tokenizer
    from pipeline.tokenizer.train import train
    from schemas.recipe import Cluster, Recipe
    from schemas.storage import Folder
    from schemas.tokenizer import TokenizerParams

    pieces = corpus()
    if not pieces:
        return {}
    docs = table(pieces)
    size = sum(len(piece.encode()) for piece in pieces) / 1e6
    result: dict[str, dict[str, float]] = {}
    data, seconds = timed(lambda: train(docs["text"], TokenizerParams(vocab_size=16_000)))
    result["tokenizer: train 16k, text"] = {"mb": size, "seconds": seconds}
    bpe = load_bpe(data, "<|endoftext|>", "bench")
    _, seconds = timed(lambda: encode(bpe, docs["text"]))
    result["encode (`tokenizers`), text"] = {"mb": size, "seconds": seconds}

    draw = np.random.default_rng(0)
    offsets = np.arange(0, TOKENS + 1, 1000, dtype=np.int64)
    values = draw.integers(0, 16_000, TOKENS, dtype=np.uint16)
    count = len(offsets) - 1
    ids = [int(i).to_bytes(16, "big") for i in range(count)]
    tokens = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
    ready = pa.table(
        {"doc_id": pa.array(ids, pa.binary(16)), "text_bytes": np.full(count, 4000), "tokens": tokens}
    )
    _, seconds = timed(lambda: build(ready, bpe, "bench-000000", 2**19, "bench.tar"))
    result["write one tar, tokens as uint16"] = {"mb": TOKENS * 2 / 1e6, "seconds": seconds}

    with tempfile.TemporaryDirectory() as scratch:
        run = Folder(scratch)
        recipe = Recipe.model_validate(
            {"name": "bench", "sources": {"bench": {"paths": ["x"]}}, "tokenizer": {"vocab_size": 16_000}}
        )
        parts = []
        for number, start in enumerate(range(0, len(docs), 500)):
            part = docs.slice(start, 500)
            file = publish_table(run / "redact", f"documents/{number:05d}.parquet", part)
            parts.append(Partition(f"{number:05d}", run / "redact", len(part), 0, file.xxh3))
        previous = {"split": run / "split", "tokenizer": run / "tokenizer"}
        here = Workers(Cluster(workers=0), progress=Progress(quiet=True))
        for stage in (Split, Tokenizer):
            stage(recipe).run(Context(recipe, run, run / stage.name, parts, previous, here))
        _, seconds = timed(
            lambda: Shards(recipe).run(Context(recipe, run, run / "shards", parts, previous, here))
        )
        result["Parquet in to tars out, text"] = {"mb": size, "seconds": seconds}
        written = sum(entry.size for entry in (run / "shards").list() if entry.path.endswith(".tar")) / 1e6
        problems, seconds = timed(lambda: verify_shards(run / "shards"))
        assert problems == []
        result["verify, tars"] = {"mb": written, "seconds": seconds}
    return result


def main() -> None:
    """Print a Markdown table."""
    result = measure()
    if not result:
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    print("| step, and what its MB are | MB | MB/s per core |\n|---|---|---|")
    for name, row in result.items():
        print(f"| {name} | {row['mb']:.1f} | {row['mb'] / max(row['seconds'], 1e-9):.1f} |")


if __name__ == "__main__":
    main()
