"""Corpora of a few words, a reference that compares every window with every other, and the search over them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Kept
from corpusmill.pipeline.dedup.substrings.substring_deduplication import find
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.text import word_rule
from corpusmill.schemas.dedup import SubstringParams
from corpusmill.schemas.manifest import PublishedFile
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc, partitions

Spans = dict[bytes, list[tuple[int, int]]]


def tokenize(text: str) -> list[tuple[int, int]]:
    """(start, stop) in bytes of each token, from `unicodedata` alone."""
    starts, at, state = [], 0, "between"
    for character in text:
        kind = word_rule.classify(unicodedata.normalize("NFD", character)[0])
        if kind in (word_rule.LETTER, word_rule.JOIN):
            if state != "inside":
                starts.append(at)
            state = "inside"
        elif kind == word_rule.ALONE:
            starts.append(at)
            state = "alone"
        elif kind == word_rule.SEPARATOR:
            state = "between"
        at += len(character.encode())
    return list(zip(starts, [*starts[1:], at], strict=False))


class Place(NamedTuple):
    """A token of the corpus: number of the document in survivor order, number of the token."""

    doc: int
    token: int


class Corpus:
    """Documents in survivor order, as tokens; which tokens the definition cuts, window by window."""

    def __init__(
        self, docs: Sequence[Doc], n: int, priorities: Mapping[str, int] | None = None,
        own: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        def order(doc: Doc) -> tuple[bool, int, bytes]:
            return own is None or doc.source in own, -(priorities or {}).get(doc.source, 0), doc.id

        self.n = n
        self.docs = sorted(docs, key=order)
        self.bounds = [tokenize(doc.text) for doc in self.docs]
        self.tokens = [
            [doc.text.encode()[start:stop] for start, stop in bounds]
            for doc, bounds in zip(self.docs, self.bounds, strict=True)
        ]
        self.guarded = [own is not None and doc.source not in own for doc in self.docs]
        self.places: dict[tuple[bytes, ...], list[Place]] = {}
        for doc, tokens in enumerate(self.tokens):
            for i in range(len(tokens) - n + 1):
                self.places.setdefault(tuple(tokens[i : i + n]), []).append(Place(doc, i))

    def cut(self) -> list[list[bool]]:
        """Per document, which tokens go."""
        gone = [[False] * len(tokens) for tokens in self.tokens]
        for places in self.places.values():
            first = places[0]
            for place in places[1:]:
                apart = place.doc != first.doc or place.token >= first.token + self.n
                if apart and not self.guarded[place.doc]:
                    gone[place.doc][place.token : place.token + self.n] = [True] * self.n
        return gone

    def spans(self) -> Spans:
        """What `cut` says, as byte spans."""
        found: Spans = {}
        for doc, bounds, gone in zip(self.docs, self.bounds, self.cut(), strict=True):
            for i, out in enumerate(gone):
                if out and i and gone[i - 1]:
                    start, _ = found[doc.id][-1]
                    found[doc.id][-1] = (start, bounds[i][1] - start)
                elif out:
                    found.setdefault(doc.id, []).append((bounds[i][0], bounds[i][1] - bounds[i][0]))
        return found

    def which(self, spans: Spans) -> list[list[bool]]:
        """Per document, which tokens lie in the spans; each lies in one whole, or in none."""
        found = []
        for doc, bounds in zip(self.docs, self.bounds, strict=True):
            flags = [
                any(at <= start and stop <= at + size for at, size in spans.get(doc.id, []))
                for start, stop in bounds
            ]
            inside = sum(stop - start for (start, stop), out in zip(bounds, flags, strict=True) if out)
            assert inside == sum(size for _, size in spans.get(doc.id, [])), "on token boundaries, apart"
            found.append(flags)
        return found


class Links:
    """Places of tokens, joined; the first of each set stands for it."""

    def __init__(self) -> None:
        self.up: dict[Place, Place] = {}

    def first(self, place: Place) -> Place:
        while place in self.up:
            place = self.up[place]
        return place

    def join(self, a: Place, b: Place) -> None:
        low, high = sorted((self.first(a), self.first(b)))
        if low != high:
            self.up[high] = low


class Found(NamedTuple):
    spans: Spans
    counters: dict[str, int]
    files: list[PublishedFile]
    folder: Folder


def search(
    root: Folder, docs: Sequence[Doc], n: int, count: int = 1, *, priorities: Mapping[str, int] | None = None,
    own: Sequence[str] | None = None, scheduler: Scheduler | None = None, memory_mb: int = 16,
) -> Found:  # fmt: skip
    """The search over documents in `count` partitions; what holds for any input is checked here."""
    parts = partitions(root / "in", docs, count)
    kept = [Kept(index, part) for index, part in enumerate(parts)]
    folder = root / "dedup"
    params = SubstringParams(min_tokens=n)
    files, counters = find(
        folder, kept, params, priorities or {}, own, scheduler or Serial(), memory_mb, "key"
    )
    spans: Spans = {}
    texts = {doc.id: doc.text.encode() for doc in docs}
    assert [file.path for file in files] == [f"spans/substrings/{part.name}.parquet" for part in parts]
    for file, part in zip(files, parts, strict=True):
        rows = read_table(folder / file.path, file.xxh3).to_pylist()
        assert file.rows == len(rows)
        assert rows == sorted(rows, key=lambda row: (row["doc_id"], row["offset"]))
        here = set(part.read(["doc_id"])["doc_id"].to_pylist())
        for row in rows:
            assert row["doc_id"] in here and row["length"] > 0
            texts[row["doc_id"]][row["offset"] : row["offset"] + row["length"]].decode()
            spans.setdefault(row["doc_id"], []).append((row["offset"], row["length"]))
    assert counters["substrings_cut"] == sum(len(found) for found in spans.values())
    assert counters["substring_bytes_cut"] == sum(length for found in spans.values() for _, length in found)
    assert counters["documents_with_cut_substrings"] == len(spans)
    return Found(spans, counters, files, folder)
