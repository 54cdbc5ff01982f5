"""Trains the shipped model for languages on the texts of `tools.language_texts`.

    python -m tools.train_language TEXTS.parquet MODEL.ftz [--without declaration] [--size 0.2]

fastText supervised (Joulin et al. 2017) on the words that classifiers see (`model_words.cleaned`): lower case, letters alone.
Examples are runs of 1 to 25 words cut at random from all texts of a language, so that short texts are learnt too; languages
with much text get more examples, and of each family of sources in proportion to the root of its size. One thread and a fixed
seed: the same texts give the same bytes.
"""

from __future__ import annotations

import argparse
import random
import string
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.filter.classifiers.fasttext_model import LABEL, fit
from corpusmill.pipeline.filter.classifiers.model_words import cleaned
from corpusmill.pipeline.filter.text.view import text_buffers
from tools.language_judged import LARGE
from tools.language_texts import NO_SPACES

SEED: Final = 20
MOST: Final = 9_000  # examples of a language
MOST_LARGE: Final = 26_000  # of one of the large ones
WORDS_AN_EXAMPLE: Final = 3  # a language with few words gets so many words for each example, at most
LEAST_WORDS: Final = 900  # of a language that is learnt
LENGTHS: Final = ((1, 3), (4, 8), (9, 25), (9, 25))  # words of an example, drawn evenly
CHARACTERS: Final = ((2, 6), (7, 20), (20, 60), (20, 60))  # of an example in scripts without spaces
UNKNOWN: Final = "und"  # ISO 639-2's code for undetermined: codes, numbers and random letters are its examples

TRAIN: Final[dict[str, Any]] = {
    "dim": 32, "epoch": 4, "lr": 0.4, "wordNgrams": 1, "minn": 2, "maxn": 4, "minCount": 12, "bucket": 400_000,
    "seed": SEED, "loss": "softmax",
}  # fmt: skip


def streams(table: pa.Table) -> dict[str, dict[str, list[str]]]:
    """Label -> family -> cleaned texts."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for batch in table.to_batches(max_chunksize=1 << 16):
        data, offsets = text_buffers(batch["text"].cast(pa.large_string()))
        words, lines = cleaned(data, offsets[:-1], offsets[1:])
        raw = words.data.tobytes()
        for row, (label, family) in enumerate(zip(batch["label"].to_pylist(), batch["family"].to_pylist(), strict=True)):
            line = raw[lines[row, 0] : lines[row, 1]].decode()
            if line:
                found[label][family].append(line)
    return found


def examples(label: str, families: dict[str, list[str]], size: float) -> Iterator[str]:
    """The examples of one label."""
    rng = random.Random(f"{SEED} {label}")
    whole = label in NO_SPACES
    pieces = {family: _shuffled(rng, texts) for family, texts in families.items()}
    counts = {family: sum(map(len, texts)) if whole else len(" ".join(texts).split()) for family, texts in pieces.items()}
    total = sum(counts.values()) // (3 if whole else 1)
    count = min(MOST_LARGE if label in LARGE else MOST, max(total // WORDS_AN_EXAMPLE, 600))
    roots = {family: n**0.5 for family, n in counts.items()}
    for family, texts in pieces.items():
        own = int(size * count * roots[family] / sum(roots.values())) + 1
        yield from (_runs_of_characters if whole else _runs_of_words)(rng, texts, own)


def _shuffled(rng: random.Random, texts: list[str]) -> list[str]:
    texts = sorted(texts)
    rng.shuffle(texts)
    return texts


def _runs_of_words(rng: random.Random, texts: list[str], count: int) -> Iterator[str]:
    """Runs of words, from a place drawn at random in all texts put together."""
    words = " ".join(texts).split()
    for _ in range(count):
        length = rng.randint(*rng.choice(LENGTHS))
        first = rng.randrange(max(len(words) - length, 1))
        yield " ".join(words[first : first + length])


def _runs_of_characters(rng: random.Random, texts: list[str], count: int) -> Iterator[str]:
    text = " ".join(texts)
    for _ in range(count):
        length = rng.randint(*rng.choice(CHARACTERS))
        first = rng.randrange(max(len(text) - length, 1))
        yield text[first : first + length].strip() or text[:length]


def no_language(count: int) -> Iterator[str]:
    """Examples of what is no language: identifiers of programs, numbers and codes, letters drawn at random."""
    rng = random.Random(SEED)
    code = "def self return import none true false int str len for in range if else elif print args kwargs null void".split()
    code += "const var let function class public static new this float double std vector size idx tmp buf ptr cfg ctx".split()
    code += "div span href src px rgb utf http www html css js json xml sql select where df np pd ax fig fn impl mut".split()
    for _ in range(count):
        kind, length = rng.randrange(4), rng.randint(3, 25)
        if kind == 0:
            yield " ".join("".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 12))) for _ in range(length))
        elif kind == 1:
            yield " ".join(
                rng.choice(code) if rng.random() < 0.7 else rng.choice(string.ascii_lowercase) + str(rng.randrange(10))
                for _ in range(length)
            )
        elif kind == 2:
            yield " ".join("".join(rng.choices("0123456789abcdef", k=rng.randint(2, 16))) for _ in range(length))
        else:
            yield " ".join(
                str(rng.randrange(10 ** rng.randint(1, 6))) + rng.choice(["", "", "kg", "x", "cm", "mb", "v"])
                for _ in range(length)
            )


def lines(table: pa.Table, size: float) -> list[str]:
    """The lines that fastText reads, in the order in which it does."""
    found = streams(table)
    out = []
    for label in sorted(found):
        words = sum(len(text.split()) if label not in NO_SPACES else len(text) for own in found[label].values() for text in own)
        if words >= LEAST_WORDS:
            out += [f"{LABEL}{label} {line}\n" for line in examples(label, found[label], size)]
    out += [f"{LABEL}{UNKNOWN} {line}\n" for line in no_language(int(size * MOST))]
    order = np.random.default_rng(SEED).permutation(len(out))
    return [out[n] for n in order]


def train(table: pa.Table, target: Path, size: float = 1.0, quantize: dict[str, Any] | None = None) -> int:
    """Write the model; the number of examples."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
        source = Path(folder) / "train.txt"
        own = lines(table, size)
        source.write_text("".join(own), encoding="utf-8")
        fit(source, target, TRAIN, quantize)
    return len(own)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.train_language", description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--without", action="append", default=[], metavar="FAMILY", help="leave a family of sources out")
    parser.add_argument("--size", type=float, default=1.0, help="share of the examples")
    parser.add_argument("--plain", action="store_true", help="not quantised")
    given = parser.parse_args()
    table = pq.read_table(given.texts)
    if given.without:
        keep = ~np.isin(table["family"].to_numpy(zero_copy_only=False), given.without)
        table = table.filter(pa.array(keep))
    count = train(table, given.model, given.size, None if given.plain else {"qnorm": True})
    print(f"{count:,} examples; {given.model.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
