"""Training a tokenizer: seconds and peak memory on natural text and on 1 GB, beside the library fed the same text; and what
the choice of the pre-tokenizer costs in bytes per token.

Each measurement is a process of its own, so that its peak is its own. The gigabyte: the natural text of `natural.py`, the
sources, headers and texts of this Python's packages and of the system's documentation, each file once; what is then missing is natural
text again under a substitution of its letters, another one for each copy. Word counts so stay as in real text, and
every copy brings words that were never there: harder on memory than more text of the same languages would be.

    python -m bench.tokenizer [--mb 1000] [--direct]      --direct: the library alone on the large text too
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import string
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import natural

VOCABULARY = 32_000
CHOICE_VOCABULARY = 16_000
PART_BYTES = 64 << 20
SUFFIXES = {
    f".{name}"
    for name in ["py", "pyi", "h", "hpp", "txt", "md", "rst", "js", "ts", "html", "c", "pyx", "gz", "json"]
}
PLACES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "/usr/include", "/usr/share/doc")
LETTERS = string.ascii_lowercase


def files() -> Iterator[str]:
    """Texts of the machine's packages and documentation, every content once."""
    seen: set[int] = set()
    for place in dict.fromkeys(PLACES):
        for file in sorted(Path(place).rglob("*")):
            if file.suffix in SUFFIXES and file.is_file() and not file.is_symlink():
                try:
                    data = file.read_bytes()
                    text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
                except (OSError, ValueError, EOFError):
                    continue
                if text and (key := hash(text)) not in seen:
                    seen.add(key)
                    yield text


def natural_texts() -> Iterator[str]:
    """All texts of the natural sources."""
    for texts in natural.sources().values():
        yield from texts()


def large(parts: dict[str, int], limit: int) -> Iterator[str]:
    """Texts of `limit` bytes; `parts` counts what they are made of."""
    copy = 0
    while True:
        what = (
            ("natural text", "packages and documentation")[copy]
            if copy < 2
            else "natural text, letters substituted"
        )
        mixed = "".join(random.Random(copy).sample(LETTERS, len(LETTERS)))
        table = str.maketrans(LETTERS + LETTERS.upper(), mixed + mixed.upper())
        for text in files() if copy == 1 else natural_texts():
            piece = text.translate(table) if copy > 1 else text
            parts[what] = parts.get(what, 0) + len(piece.encode())
            yield piece
            if sum(parts.values()) >= limit:
                return
        copy += 1


def publish(folder: Path, texts: Iterable[str]) -> tuple[int, int]:
    """Partitions of `texts` and a split without validation, as a run has them; (documents, bytes)."""
    from corpusmill.common.ids import doc_id, text_hash
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.publish import publish_table
    from corpusmill.schemas.tables import DOCUMENTS

    held: list[dict[str, Any]] = []
    docs = size = part_size = 0
    listing: list[list[Any]] = []

    def flush() -> None:
        table = pa.Table.from_pylist(held, schema=DOCUMENTS)
        name = f"{len(listing):05d}"
        file = publish_table(Folder(folder / "redact"), f"documents/{name}.parquet", table)
        listing.append([name, len(table), part_size, file.xxh3])

    empty = dict.fromkeys(DOCUMENTS.names)
    for docs, text in enumerate(texts, 1):
        held.append(
            {**empty, "doc_id": doc_id("bench", str(docs)), "source": "bench", "locator": str(docs), "text": text, "text_hash": text_hash(text)}
        )  # fmt: skip
        part_size += len(text.encode())
        if part_size >= PART_BYTES:
            flush()
            size, part_size, held = size + part_size, 0, []
    flush()
    (folder / "partitions.json").write_text(json.dumps(listing))
    return docs, size + part_size


def partitions(folder: Path) -> list[Any]:
    """What `publish` left."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.stage import Partition

    rows = json.loads((folder / "partitions.json").read_text())
    return [Partition(name, Folder(folder / "redact"), docs, size, xxh3) for name, docs, size, xxh3 in rows]


def stage(folder: Path) -> bytes:
    """Ours: the sample drawn from the partitions (all of it, here), its words counted by threads, and training from the counts."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.engine.stage import Context
    from corpusmill.pipeline.split.stage import Split
    from corpusmill.pipeline.tokenizer.sample import draw
    from corpusmill.pipeline.tokenizer.train import train
    from corpusmill.schemas.recipe import Cluster, Recipe

    recipe = Recipe.model_validate(
        {
            "name": "bench",
            "sources": {"bench": {"paths": ["x"]}},
            "split": {"validation_share": 0.0, "min_documents": 0},
            "tokenizer": {"vocab_size": VOCABULARY, "sample_mb": 1e6},
        }
    )
    run = Folder(folder)
    here = Workers(Cluster(workers=0), progress=Progress(quiet=True))
    parts = partitions(folder)
    previous = {"split": run / "split"}
    Split(recipe).run(Context(recipe, run, run / "split", parts, previous, here))
    splits = json.loads((run / "split/split.json").read())["sources"]
    drawn = draw(Context(recipe, run, run / "tokenizer", parts, previous, here), 10**12, splits, "bench")
    return train((table["text"] for table in drawn.tables()), recipe.tokenizer)


def library(folder: Path) -> bytes:
    """The library alone: the same documents as strings, the same settings."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from corpusmill.common.pre_tokenizers import pre_tokenizer
    from corpusmill.schemas.tokenizer import TokenizerParams

    sections = json.loads(Tokenizer(models.BPE()).to_str())
    sections["pre_tokenizer"] = pre_tokenizer(TokenizerParams().pre_tokenizer, "as_pattern")
    tokenizer = Tokenizer.from_str(json.dumps(sections))
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    texts = (text for part in partitions(folder) for text in part.read(["text"])["text"].to_pylist())
    tokenizer.train_from_iterator(texts, trainer)
    return str(tokenizer.to_str()).encode()


def child(what: str, folder: Path) -> None:
    """One measurement, printed as JSON."""
    start, clock = time.process_time(), time.perf_counter()
    data = {"stage": stage, "library": library}[what](folder)
    row = {
        "seconds": time.process_time() - start, "wall": time.perf_counter() - clock,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "merges": json.loads(data)["model"]["merges"],
    }  # fmt: skip
    print(json.dumps(row))


def ask(what: str, folder: Path) -> dict[str, Any]:
    """The measurement of a child process."""
    command = [sys.executable, "-m", "bench.tokenizer", "--child", what, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def compare(label: str, texts: Iterable[str], direct: bool) -> None:
    """Rows of the table for one text."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        docs, size = publish(folder, texts)
        rows = {"CorpusMill": ask("stage", folder)} | (
            {"`tokenizers` alone": ask("library", folder)} if direct else {}
        )
        equal = len({json.dumps(row["merges"]) for row in rows.values()}) == 1
        for name, row in rows.items():
            same = ("equal" if equal else "DIFFERENT") if len(rows) > 1 else "–"
            print(
                f"| {label}, {docs:,} documents | {name} | {size / 1e6:.1f} | {row['seconds']:.0f} | {row['wall']:.0f}"
                f" | {size / 1e6 / row['seconds']:.2f} | {row['peak'] / 1e9:.2f} | {same} |",
                flush=True,
            )


def choices() -> None:
    """Bytes per token by pre-tokenizer on texts that were not trained on: every tenth of each kind."""
    from corpusmill.pipeline.bpe.encode import encode
    from corpusmill.pipeline.bpe.load import load_bpe
    from corpusmill.pipeline.tokenizer.train import train
    from corpusmill.schemas.tokenizer import TokenizerParams

    stdlib = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    books = "\n".join(natural.read_only("books"))[:4_000_000]
    kinds = {
        "English": [books[i : i + 8000] for i in range(0, len(books), 8000)],
        "code": [file.read_text("utf-8") for file in stdlib],
        "75 languages": [text for _, text in natural.sentences()],
    }
    held = {kind: texts[::10] for kind, texts in kinds.items()}
    trained = [text for texts in kinds.values() for i, text in enumerate(texts) if i % 10]
    print(
        f"\n| pre-tokenizer, {CHOICE_VOCABULARY:,} tokens | "
        + " | ".join(f"{kind}, bytes per token" for kind in kinds)
        + " |"
    )
    print("|---" * (1 + len(kinds)) + "|")
    for name in ("gpt2", "llama3", "gpt4o"):
        for digits in ("as_pattern", "single"):
            params = TokenizerParams.model_validate(
                {"vocab_size": CHOICE_VOCABULARY, "pre_tokenizer": name, "digits": digits}
            )
            bpe = load_bpe(
                train(pa.chunked_array([pa.array(trained, pa.large_string())]), params),
                params.eos_token,
                name,
            )
            figures = []
            for texts in held.values():
                ids, _ = encode(bpe, pa.chunked_array([pa.array(texts, pa.large_string())]))
                figures.append(f"{sum(len(text.encode()) for text in texts) / len(ids):.3f}")
            print(f"| {name}, digits {digits} | " + " | ".join(figures) + " |", flush=True)


def main() -> None:
    """Print two Markdown tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=float, default=1000.0)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
        return
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    print(
        "| text | by | MB | CPU s | s | MB/s per CPU s | peak memory, GB | merges |\n|---|---|---|---|---|---|---|---|"
    )
    compare("natural", natural_texts(), direct=True)
    if options.mb > 0:
        parts: dict[str, int] = {}
        compare("large", large(parts, int(options.mb * 1e6)), direct=options.direct)
        print(
            "\nThe large text: "
            + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in parts.items())
            + "."
        )
    choices()


if __name__ == "__main__":
    main()
