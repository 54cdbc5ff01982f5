"""Shards: MB/s per core of writing tars, of Parquet in to tars out (tokens and text), of exports, and of verifying."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from bench import natural

TEXT_BYTES = 13_000_000
PARTITION = 1200  # documents: about 5 MB of text
TOKENS = 64_000_000  # for writing alone: 128 MB as uint16
LENGTHS = (100, 1000)  # tokens of a document: of short ones, the .json takes its share
REPEATS = 7  # of Parquet in to tars out, and of verifying: the median counts
LOAD = "load the tokenizer"
# How fast encoding is depends on the words that the process has seen: each is merged once.
UNSEEN = "token shards, text, no word of it seen before"
SEEN = "token shards, text, every word of it seen before"


def corpus() -> list[str]:
    """Books in pieces of about 4 kB, `TEXT_BYTES` of them."""
    pieces: list[str] = []
    size = 0
    for text in natural.sources()["books"]() if natural.available() else ():
        for start in range(0, len(text), 4000):
            pieces.append(text[start : start + 4000])
            size += len(pieces[-1].encode())
            if size >= TEXT_BYTES:
                return pieces
    return pieces


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """A result, and the CPU seconds of this process that it took."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


class _Nowhere:
    """Takes a tar and keeps nothing: writing without the disk."""

    def write(self, data: bytes | memoryview) -> int:
        return len(data)


def writing() -> dict[str, dict[str, float]]:
    """Phase 2 from documents in their order: cutting blocks, their JSON, both checksums, the tar."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.bpe.load import Bpe
    from corpusmill.pipeline.shard.segments import WINDOW, Window
    from corpusmill.pipeline.shard.write import write_blocks

    draw = np.random.default_rng(0)
    known: dict[str, Any] = {
        **dict.fromkeys(Bpe._fields), "eos_id": 0, "vocab_size": 32_000, "lead_bytes": np.full(32_000, 4, np.int32),
        "byte_lengths": np.full(32_000, 4, np.int32), "inside": np.zeros(32_000, bool),
    }  # fmt: skip
    bpe = Bpe(**known)
    result: dict[str, dict[str, float]] = {}
    for length in LENGTHS:
        count = WINDOW // 2 // length
        offsets = np.arange(0, count * length + 1, length, dtype=np.int64)
        tokens = draw.integers(1, 32_000, int(offsets[-1]), dtype=np.uint16)
        ids = draw.integers(0, 256, (count, 16), dtype=np.uint8)
        window = Window(ids, tokens, offsets, 4 * len(tokens))
        windows = [window] * (TOKENS // len(tokens))
        size = len(windows) * len(tokens) * 2 / 1e6
        write_blocks([window], bpe, "warm", 2**19, _Nowhere())  # compiles
        _, seconds = timed(partial(write_blocks, windows, bpe, "bench-train-000000", 2**19, _Nowhere()))
        what = f"tokens of documents of {length}"
        result[f"write a tar to nowhere, {what}"] = {"mb": size, "seconds": seconds}
        with tempfile.TemporaryDirectory() as scratch:

            def to_disk(w: list[Window] = windows, folder: Folder = Folder(scratch)) -> None:
                with (folder / "a.tar").create() as stream:
                    write_blocks(w, bpe, "bench-train-000000", 2**19, stream)

            _, seconds = timed(to_disk)
        result[f"write a tar to a disk, {what}"] = {"mb": size, "seconds": seconds}
    return result


def measure() -> dict[str, dict[str, float]]:
    """Name -> MB of input (text, or tokens where stated) and CPU seconds; the process has compiled its kernels, and but for
    `LOAD` has the tokenizer. Empty without text."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.bpe.kernels.table import MISSES
    from corpusmill.pipeline.bpe.load import load_bpe
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.engine.publish import publish_table
    from corpusmill.pipeline.engine.stage import Context, Partition
    from corpusmill.pipeline.inspect.shards import verify_shards
    from corpusmill.pipeline.shard.export import export
    from corpusmill.pipeline.shard.stage import Shards
    from corpusmill.pipeline.split.stage import Split
    from corpusmill.pipeline.tokenizer.stage import Tokenizer
    from corpusmill.schemas.recipe import Cluster, Recipe

    pieces = corpus()
    if not pieces:
        return {}
    docs = natural.table(pieces)
    size = sum(len(piece.encode()) for piece in pieces) / 1e6
    result = writing()
    with tempfile.TemporaryDirectory() as scratch:
        run = Folder(scratch)
        parts = []
        for number, start in enumerate(range(0, len(docs), PARTITION)):
            part = docs.slice(start, PARTITION)
            file = publish_table(run / "redact", f"documents/{number:05d}.parquet", part)
            parts.append(Partition(f"{number:05d}", run / "redact", len(part), 0, file.xxh3))
        previous = {"split": run / "split", "tokenizer": run / "tokenizer"}
        here = Workers(Cluster(workers=0), progress=Progress(quiet=True))

        def recipe(form: str) -> Recipe:
            return Recipe.model_validate(
                {"name": "bench", "sources": {"bench": {"paths": ["x"]}}, "tokenizer": {"vocab_size": 16_000},
                 "shard": {"format": form}}
            )  # fmt: skip

        for stage in (Split, Tokenizer):
            made = recipe("tokens")
            stage(made).run(Context(made, run, run / stage.name, parts, previous, here))

        def shards(form: str) -> float:
            made = recipe(form)
            (run / form).delete()
            return timed(partial(Shards(made).run, Context(made, run, run / form, parts, previous, here)))[1]

        tokenizer, eos_token = run / "tokenizer/tokenizer.json", recipe("tokens").tokenizer.eos_token
        data, name = tokenizer.read(), str(tokenizer)
        loads = [timed(partial(load_bpe, data + b"\n" * i, eos_token, name))[1] for i in range(1, REPEATS)]
        result[LOAD] = {"mb": len(data) / 1e6, "seconds": median(loads)}
        shards("tokens")  # compiles
        unseen, seen = [], []
        for _ in range(REPEATS):
            engine = load_bpe(data, eos_token, name).engine  # the one that the stage has
            assert engine is not None
            engine.forget()
            unseen.append(shards("tokens"))
            misses = engine.counters[MISSES]
            seen.append(shards("tokens"))
            assert 0 < misses == engine.counters[MISSES]
        shards("text")  # compiles
        text = [shards("text") for _ in range(REPEATS)]
        for what, seconds in ((UNSEEN, unseen), (SEEN, seen), ("text shards, text", text)):
            result[f"Parquet in to tars out, {what}"] = {"mb": size, "seconds": median(seconds)}
        tars = run / "tokens"
        written = sum(entry.size for entry in tars.list() if entry.path.endswith(".tar")) / 1e6
        for to in ("megatron", "datatrove"):
            _, taken = timed(partial(export, tars, run / to, to, here))
            result[f"export to {to}, tars"] = {"mb": written, "seconds": taken}
        verify_shards(tars)  # loads the tokenizer, as a reader of these shards
        verified = [timed(lambda: verify_shards(tars)) for _ in range(REPEATS)]
        assert all(problems == [] for problems, _ in verified)
        result["verify, tars"] = {"mb": written, "seconds": median(taken for _, taken in verified)}
    return result


def main() -> None:
    """Print a Markdown table."""
    result = measure()
    if not result:
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    load = result.pop(LOAD)
    print("| step, and what its MB are | MB | MB/s per core |\n|---|---|---|")
    for name, row in result.items():
        print(f"| {name} | {row['mb']:.1f} | {row['mb'] / max(row['seconds'], 1e-9):.1f} |")
    print(
        f"\nLoading the tokenizer ({load['mb']:.1f} MB of JSON) comes to that once a process: {load['seconds'] * 1e3:.0f} ms."
    )


if __name__ == "__main__":
    main()
