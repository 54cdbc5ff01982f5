"""Encoding: MB/s per core of our kernels, of `tokenizers` and of tiktoken with one vocabulary, ids compared."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench import natural
from bench.peers import NotMeasured, Peer, ask, write_documents
from corpusmill.pipeline.bpe.kernels.table import LONG_BYTES, LONG_IDS, MISSES, SLOTS

TIKTOKEN = Peer("tiktoken", ("tiktoken==0.14.0",), "tiktoken_encode.py")
FORMS = ("gpt2", "llama3", "gpt4o")
VOCAB_SIZE = 32_000
TIMES = 3  # measurements of each state, of which the quickest counts, for the library as for us
SET_BYTES = 6_000_000  # of each set at most: documents spread over all of it
EOS = "<|endoftext|>"


def texts() -> dict[str, list[str]]:
    """English books, Python's own library, sentences and declarations in some four hundred languages and varieties."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = (f for f in sorted(library.rglob("*.py")) if not {"site-packages", "test"} & set(f.parts))
    languages = (natural.DATA / "langid" / name for name in ("lingua_testdata", "udhr2"))
    whole = {
        "English (books)": [part for book in natural.read_only("books") for part in pieces(book)],
        "code (Python's library)": [file.read_text("utf-8", "replace") for file in files],
        "mixed script (languages)": [row["text"] for folder in languages for row in natural.rows(folder)],
    }
    return {name: spread(documents) for name, documents in whole.items()}


def pieces(book: str) -> list[str]:
    """A book in documents of 20,000 characters."""
    return [book[start : start + 20_000] for start in range(0, len(book), 20_000)]


def spread(documents: list[str]) -> list[str]:
    """Every n-th document, so that about `SET_BYTES` are left."""
    return documents[:: -(-sum(len(text.encode()) for text in documents) // SET_BYTES)]


def train(form: str, documents: list[str]) -> bytes:
    """`tokenizer.json` of a form, trained on these documents."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from corpusmill.common.pre_tokenizers import pre_tokenizer

    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    content = {**json.loads(tokenizer.to_str()), "pre_tokenizer": pre_tokenizer(form, "as_pattern")}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=[EOS], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    tokenizer.train_from_iterator(documents, trainer)
    return bytes(tokenizer.to_str().encode())


def least(times: dict[str, float], key: str, function: Callable[[], Any]) -> Any:
    """What a function returns; its CPU seconds, of this process and all its threads, into `times` if they are fewer."""
    start = time.process_time()
    result = function()
    times[key] = min(times[key], time.process_time() - start)
    return result


def fresh(bpe: Any) -> Any:
    """The library's tokenizer with an empty cache of words."""
    from corpusmill.pipeline.bpe.load import library

    return library(bpe.tokenizer.to_str().encode(), "tokenizer.json")


def measure(form: str, sets: dict[str, list[str]], folder: Path) -> dict[str, dict[str, Any]]:
    """Set -> MB/s per core of each way, and whether ids are equal."""
    from corpusmill.pipeline.bpe.encode import encode, how
    from corpusmill.pipeline.bpe.load import load_bpe
    from corpusmill.pipeline.bpe.recognise import PATTERNS
    from corpusmill.pipeline.bpe.recognise import _gpt2 as gpt2

    data = train(form, [text for documents in sets.values() for text in documents[::2]])
    bpe = load_bpe(data, EOS, form)
    assert bpe.engine is not None, how(bpe)
    encode(bpe, pa.chunked_array([["compiled, and its tables made"]]))
    sections = json.loads(data)["pre_tokenizer"].get("pretokenizers", [])
    pattern = sections[0]["pattern"]["Regex"] if sections else gpt2(r"\p{N}+")
    assert pattern in PATTERNS
    (folder / "tokenizer.json").write_bytes(data)
    result: dict[str, dict[str, Any]] = {}
    for name, documents in sets.items():
        result[name], digests = compare(bpe, documents)
        try:
            rows = pa.array(documents)
            path = write_documents(folder / "documents.jsonl", map(str, range(len(rows))), rows)
            answer = ask(TIKTOKEN, path, folder / "tokenizer.json", pattern)
            same = sum(a == b for a, b in zip(answer["digests"], digests, strict=True))
            result[name] |= {"tiktoken": result[name]["mb"] / answer["seconds"], "same": same}
        except NotMeasured as reason:
            result[name]["why"] = str(reason)
    return result


def compare(bpe: Any, documents: list[str]) -> tuple[dict[str, Any], list[str]]:
    """(rates of ours and the library's and documents with equal ids, a digest of the library's ids of each document)."""
    from corpusmill.pipeline.bpe.encode import encode

    def column(some: list[str]) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(some, pa.large_string())])

    def library(some: list[str]) -> list[Any]:
        encodings: list[Any] = theirs.encode_batch_fast(some, add_special_tokens=False)
        return encodings

    parts = documents, documents[::2], documents[1::2]
    whole, first, second = map(column, parts)
    ours, others = ({"cold": float("inf"), "half": float("inf"), "warm": float("inf")} for _ in range(2))
    ids, offsets = encode(bpe, whole)
    for _ in range(TIMES):  # alternating, so that a change of the machine's speed affects both sides
        bpe.engine.forget()
        least(ours, "cold", lambda: encode(bpe, whole))
        new = int(bpe.engine.counters[MISSES])
        least(ours, "warm", lambda: encode(bpe, whole))
        bpe.engine.forget()
        encode(bpe, first)
        least(ours, "half", lambda: encode(bpe, second))
        theirs = fresh(bpe)
        batch = least(others, "cold", lambda: library(parts[0]))
        least(others, "warm", lambda: library(parts[0]))
        theirs = fresh(bpe)
        library(parts[1])
        least(others, "half", lambda: library(parts[2]))
    rows = [np.array(encoding.ids, np.uint32) for encoding in batch]
    pairs = zip(rows, np.split(ids, offsets[1:-1]), strict=True)
    size = {"cold": text_mb(documents), "half": text_mb(parts[2]), "warm": text_mb(documents)}
    rates = {key: size[key] / ours[key] for key in ours}
    rates |= {f"library {key}": size[key] / others[key] for key in others}
    equal = sum(np.array_equal(row, other) for row, other in pairs)
    digests = [hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in rows]
    return {"mb": size["cold"], "docs": len(documents), "new": new, "equal": equal, **rates}, digests


def text_mb(documents: list[str]) -> float:
    """10^6 bytes of UTF-8."""
    return sum(len(text.encode()) for text in documents) / 1e6


def main() -> None:
    """Print a Markdown table."""
    os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    from importlib.metadata import version

    sets = texts()
    print(
        f"Byte-level BPE of {VOCAB_SIZE} tokens, trained on half of these texts; text in memory, ids out; MB/s per core in CPU\n"
        f"seconds on all sides, the library (tokenizers {version('tokenizers')}, `encode_batch_fast`) on one thread\n"
        f"(RAYON_NUM_THREADS=1, TOKENIZERS_PARALLELISM=false), {TIKTOKEN.label} by `encode_ordinary`. Cold: the table of\n"
        "pre-tokens is empty at the start, as is the library's cache of words; half: both have seen every other document, and\n"
        "the rest is measured; warm: both have seen all of them. A ratio is that of two rates in the same state, each the best\n"
        f"of {TIMES}, measured in turn. A large corpus begins cold and is soon beyond half. Kernels are compiled before. The table\n"
        f"holds at most {SLOTS // 2} pre-tokens in {(20 * SLOTS + LONG_BYTES + 4 * LONG_IDS) / 2**20:.0f} MiB.\n"
    )
    print(
        "| pre-tokenizer | text | MB | new pre-tokens | cold | half | warm | library cold | half | warm | ratio cold | half | warm |"
        " equal ids | tiktoken | ratio warm | equal ids |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as place:
        for form in FORMS:
            for name, row in measure(form, sets, Path(place)).items():
                states = ("cold", "half", "warm")
                rates = " | ".join(f"{row[key]:.1f}" for key in states)
                rates += " | " + " | ".join(f"{row[f'library {key}']:.2f}" for key in states)
                ratios = " | ".join(f"{row[key] / row[f'library {key}']:.0f}" for key in states)
                peer = (
                    f"{row['tiktoken']:.1f} | {row['warm'] / row['tiktoken']:.0f} | {row['same']} of {row['docs']}"
                    if "tiktoken" in row
                    else f"not measured: {row['why']} | |"
                )
                print(
                    f"| {form} | {name} | {row['mb']:.1f} | {row['new']} | {rates} | {ratios} |"
                    f" {row['equal']} of {row['docs']} | {peer} |"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
