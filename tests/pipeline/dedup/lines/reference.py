"""Line deduplication in plain Python: slow, and written from the descriptions alone."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from corpusmill.pipeline.text.word_rule import ALONE, SEPARATOR
from corpusmill.schemas.dedup import LineParams
from tests.pipeline.dedup.helpers import Doc
from tests.pipeline.text.reference import kind_of, words_of

WHITE = " \t\n\v\f\r"
SENTENCE_END = re.compile(r"""[.?!。！？｡]+(?:[.?!。！？｡"')\]»’”》」』】）]*)""")
Key = tuple[object, ...]
Span = tuple[int, int]  # characters


def words(text: str) -> Key:
    """The words of a unit, digits as 0, marks of a letter in any order."""
    plain = "".join("0" if unicodedata.category(c) == "Nd" else c for c in text)
    return tuple(
        tuple(
            (tuple(p for p, mark in c if not mark), tuple(sorted(p for p, mark in c if mark))) for c in word
        )
        for word in words_of(plain)
    )


def lines(text: str) -> Iterator[Span]:
    for match in re.finditer(r"[^\n]+", text):
        yield match.span()


def paragraphs(text: str) -> Iterator[Span]:
    start = 0
    for match in [*re.finditer(r"\n[ \t\v\f\r]*(?=\n)|\Z", text)]:
        yield start, match.start()
        start = match.end()


def sentences(text: str) -> Iterator[Span]:
    for low, high in lines(text):
        start = low
        for match in SENTENCE_END.finditer(text, low, high):
            end = match.end()
            wide = any(c in "。！？｡" for c in match.group())
            if (wide or end == high or text[end] in WHITE) and words(text[start:end]):
                yield start, end
                start = end
        if words(text[start:high]):
            yield start, high


def stripped(text: str, span: Span) -> Span:
    start, stop = span
    while start < stop and text[start] in WHITE:
        start += 1
    while start < stop and text[stop - 1] in WHITE:
        stop -= 1
    return start, stop


def units(text: str, params: LineParams) -> list[tuple[Key, Span]]:
    """Units of enough words: key and place, without the white space at the ends."""
    if params.unit != "sentences":
        spans = lines(text) if params.unit == "line" else paragraphs(text)
        found = [(words(text[a:b]), stripped(text, (a, b))) for a, b in spans]
        return [(key, span) for key, span in found if len(key) >= params.min_words]
    parts = [(words(text[a:b]), stripped(text, (a, b))) for a, b in sentences(text)]
    windows: list[tuple[Key, Span]] = []
    for i in range(len(parts) - params.sentences + 1):
        window = parts[i : i + params.sentences]
        if sum(len(key) for key, _ in window) >= params.min_words:
            windows.append((tuple(key for key, _ in window), (window[0][1][0], window[-1][1][1])))
    return windows


def repeats(
    docs: Sequence[Doc], texts: Mapping[bytes, str], params: LineParams, priority: Mapping[str, int],
    only: Sequence[str] | None,
) -> tuple[dict[bytes, list[Span]], list[int]]:  # fmt: skip
    """What one pass cuts from each text, and how often each repeated unit occurs."""
    places: dict[Key, list[tuple[bool, int, bytes, int, int]]] = defaultdict(list)
    for doc in docs:
        fixed = only is not None and doc.source not in only
        for key, (start, stop) in units(texts[doc.id], params):
            places[key].append((not fixed, -priority.get(doc.source, 0), doc.id, start, stop))
    cuts: dict[bytes, list[Span]] = defaultdict(list)
    for found in places.values():
        for free, _, doc_id, start, stop in sorted(found)[1:]:
            if free:
                cuts[doc_id].append((start, stop))
    return cuts, [len(found) for found in places.values() if len(found) > 1]


def cut(text: str, spans: Sequence[Span]) -> list[str | None]:
    """The characters of a text, None for those that go: the rules of `span_edges.py`."""
    left: list[str | None] = list(text)
    marks = [any(a <= i < b for a, b in spans) for i in range(len(text))]
    # White space belongs to a cut if it lies between two characters that are cut.
    solid = [i for i, c in enumerate(text) if c not in WHITE]
    runs: list[list[int]] = []
    for place, i in enumerate(solid):
        if marks[i]:
            if place and marks[solid[place - 1]]:
                runs[-1].append(i)
            else:
                runs.append([i])
    for run in runs:
        start, stop = run[0], run[-1] + 1
        before = re.search(r"[ \t\n\v\f\r]*\Z", text[:start]).group()  # type: ignore[union-attr]
        after = re.match(r"[ \t\n\v\f\r]*", text[stop:]).group()  # type: ignore[union-attr]
        new = replacement(text, start, stop, before, after)
        low, high = start - len(before), stop + len(after)
        left[low:high] = [None] * (high - low)
        if low < high:
            left[low] = new
    return left


def replacement(text: str, start: int, stop: int, before: str, after: str) -> str:
    """What stands in place of a cut and the white space around it."""
    first, last = len(before) == start, stop + len(after) == len(text)
    if first and last:
        return ""
    if last:
        return after
    if first and "\n" in after:
        return before[: before.rfind("\n") + 1] + after[after.rfind("\n") + 1 :]
    if "\n" in before and "\n" in after:
        if before.count("\n") >= after.count("\n"):
            return before[: before.rfind("\n") + 1] + after[after.rfind("\n") + 1 :]
        return before[: before.find("\n")] + after[after.find("\n") :]
    if first or "\n" in before:
        return before
    if "\n" in after:
        return after
    core = text[start:stop]
    own = re.search(r"\r?\n\r?\n", core) or re.search(r"\r?\n", core)
    if own:
        return own.group()
    if before or after:
        return before or after
    kinds = [kind(text[start - 1]), kind(text[stop])]
    if SEPARATOR in kinds or ALONE in kinds:
        return ""
    for wanted in (lambda c: c in WHITE, lambda c: kind(c) == SEPARATOR, lambda c: kind(c) == ALONE):
        for c in core:
            if wanted(c):
                return c
    return core


def kind(character: str) -> int:
    return kind_of(unicodedata.normalize("NFD", character)[0])


def deduplicated(
    docs: Sequence[Doc], params: LineParams, priority: Mapping[str, int], only: Sequence[str] | None
) -> dict[bytes, str]:
    """What is left of each text."""
    texts = {doc.id: doc.text for doc in docs}
    while True:
        cuts, _ = repeats(docs, texts, params, priority, only)
        shorter = {i: "".join(c for c in cut(text, cuts.get(i, [])) if c) for i, text in texts.items()}
        if params.unit != "sentences" or shorter == texts:
            return shorter
        texts = shorter
