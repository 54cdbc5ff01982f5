"""Language identification: how much of a text is read, and what that costs in accuracy and buys in speed.

Labelled text: ../shared/data/langid/lingua_testdata, 9,000 news sentences in 75 languages, alone and put together to
documents of 30 sentences (a document of one language each), the same again behind 600 characters of an English menu, as
web pages begin. Speed: the documents of `bench.filter`, CPU seconds of one thread, beside the fastText library on the
same texts. All rows but the last are of lid.176, which says `no` where the set says `nb`; eight of the set's languages it does not
know, so 89 % is the most that it can reach. The last is the shipped model as the stage reads texts by default; seven temperatures of
it were fitted to half of these sentences.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench import natural
from bench.filter import documents

SAME = {"nb": "no"}  # lid.176 does not part Bokmål from Norwegian
JOINED = 30  # sentences of a document
MENU = 600  # characters
SURE = 0.65  # the threshold of the recipe
STARTS = (100, 200, 500, 1_000, 2_000)  # characters
SPREAD = ((4, 100), (10, 100), (4, 200), (10, 200), (20, 200))  # windows, characters


class Reading(NamedTuple):
    """What is read of a text: its first characters, or windows spread over it."""

    windows: int
    chars: int
    start: bool

    def __str__(self) -> str:
        return f"first {self.chars:,}" if self.start else f"{self.windows} x {self.chars}, spread"


def labelled() -> dict[str, tuple[list[str], list[str]]]:
    """Kind of text -> (texts, their languages)."""
    from tools import made_texts

    rows = [(SAME.get(language, language), text) for language, text in natural.sentences()]
    grouped = defaultdict(list)
    for language, text in rows:
        grouped[language].append(text)
    texts, languages = [], []
    for language, own in sorted(grouped.items()):
        for first in range(0, len(own) - JOINED + 1, JOINED):
            texts.append("\n".join(own[first : first + JOINED]))
            languages.append(language)
    rng = random.Random(0)
    menus = made_texts.menus(1, 200)
    behind = ["\n".join(rng.sample(menus, 10))[:MENU] + "\n" + text for text in texts]
    return {
        "sentences": ([text for _, text in rows], [language for language, _ in rows]),
        "documents": (texts, languages),
        "behind a menu": (behind, languages),
    }


Answers = Callable[[pa.LargeStringArray], tuple[Any, Any]]


def identify(text: pa.LargeStringArray, model: Any, reading: Reading) -> tuple[Any, Any]:
    """(label numbers, probabilities) by what `reading` takes of each text."""
    from corpusmill.pipeline.filter.classifiers.language import whole
    from corpusmill.pipeline.filter.classifiers.model_words import as_it_stands
    from corpusmill.pipeline.filter.classifiers.pieces import windows_of
    from corpusmill.pipeline.filter.text.view import text_buffers

    text = pc.utf8_slice_codeunits(text, 0, reading.chars) if reading.start else text
    data, offsets = text_buffers(text)
    windows = (1 << 40, 1) if reading.start else (reading.chars, reading.windows)
    first, last, owner = windows_of(data, offsets, *windows)
    words = as_it_stands(data, first, last)
    return model.best(words, whole(words, owner))


def accuracy(
    answers: Answers, names: list[str], texts: list[str], languages: list[str]
) -> tuple[float, float, float]:
    """(share right, share the model is sure of, share right of those); `names` are the model's labels by number."""
    label, probability = answers(pa.array(texts, pa.large_string()))
    right = np.array([n >= 0 and names[n] == wanted for n, wanted in zip(label, languages, strict=True)])
    sure = probability >= SURE
    return float(right.mean()), float(sure.mean()), float(right[sure].mean())


def speed(function: Callable[[pa.LargeStringArray], Any], parts: list[pa.LargeStringArray]) -> float:
    """MB/s per core over whole texts, read or not."""
    function(parts[0].slice(0, 20))
    start = time.process_time()
    for part in parts:
        function(part)
    seconds = time.process_time() - start
    return sum(pc.sum(pc.binary_length(part)).as_py() for part in parts) / 1e6 / seconds


def main() -> None:
    """Print both tables."""
    if not natural.DATA.is_dir():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    from corpusmill.pipeline.filter.classifiers import fasttext_model, language, predictor
    from corpusmill.pipeline.filter.text.view import spans

    file = fasttext_model.shipped(fasttext_model.LID_176)
    model, library = predictor.load(file.path, file.xxh3), fasttext_model.load(file.path, file.xxh3)
    text = documents()["text"].combine_chunks()
    parts = [text.slice(first, last - first) for first, last in spans(text)]
    whole = float(np.sum(pc.utf8_length(text).to_numpy()))
    sets = labelled()
    readings = [Reading(1, n, True) for n in STARTS] + [Reading(n, chars, False) for n, chars in SPREAD]
    readings.append(Reading(1, 1 << 40, True))
    print(
        f"{len(text):,} texts, {whole / 1e6:.1f} million characters; accuracy on "
        + ", ".join(f"{len(texts):,} {kind}" for kind, (texts, _) in sets.items())
        + f". Sure: probability of {SURE} and more.\n"
    )
    kinds = " | ".join(f"{kind}: right | of those sure" for kind in list(sets)[1:])
    print(f"| read | of the text | MB/s per core | sentences: right | {kinds} |")
    print("|---|---|---|---|" + "---|" * (2 * len(sets) - 2))

    def row(name: str, reading: Reading, answers: Answers, names: list[str]) -> None:
        lengths = pc.utf8_length(text).to_numpy()
        read = float(np.minimum(lengths, reading.chars * reading.windows).sum()) / whole
        found = {kind: accuracy(answers, names, *data) for kind, data in sets.items()}
        cells = [f"{found['sentences'][0]:.1%}"]
        for kind in list(sets)[1:]:
            cells += [f"{found[kind][0]:.1%}", f"{found[kind][2]:.1%}"]
        print(f"| {name} | {read:.0%} | {speed(answers, parts):.1f} | " + " | ".join(cells) + " |")

    for reading in readings:
        name = "everything" if reading.chars == 1 << 40 else str(reading)
        mark = (
            " (lid.176 in a recipe)"
            if reading == Reading(language.LANGUAGE_WINDOWS, language.LANGUAGE_CHARS, False)
            else ""
        )
        row(
            f"{name}{mark}",
            reading,
            lambda part, reading=reading: identify(part, model, reading),
            model.labels,
        )  # type: ignore[misc]
    shipped = fasttext_model.shipped(fasttext_model.LANGUAGE_MODEL)
    own = predictor.load(shipped.path, shipped.xxh3)
    known = language.profile(str(shipped.profile), tuple(own.labels))
    reading = Reading(language.OWN_WINDOWS, language.LANGUAGE_CHARS, False)
    row(
        f"{reading}: the shipped model",
        reading,
        lambda part: language.identify(part, own, known)[:2],
        own.labels,
    )

    def ask(part: pa.LargeStringArray) -> None:
        for line in pc.utf8_slice_codeunits(part, 0, 2_000).to_pylist():
            fasttext_model.predict(library, line.replace("\n", " "), 1)

    print(
        f"\nThe fastText library on the first 2,000 characters, a Python string each: {speed(ask, parts):.1f} MB/s."
    )


if __name__ == "__main__":
    main()
