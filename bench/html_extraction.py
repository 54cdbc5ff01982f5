"""HTML to text: accuracy and speed of the extractors that `ingest` offers, on two sets of real pages.

Word and 4-gram F1: the multisets of words, and of runs of four, against the expected article, mean over pages (Readability's test pages,
whose gold text is the accepted output of Readability.js). Segments: strings that the main text must hold, and strings that it must not,
up to three of each a page (trafilatura's evaluation set). "Held out": only pages that the model of `main_text` was not made of, nor of any of their site or like them;
its card, `pipeline/ingest/readers/main_text/model.md`, has figures of all pages, each judged by a model made without it. Speed: all
pages of both sets, one core, parsing included.
"""

from __future__ import annotations

import gzip
import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.ingest.readers.html import decode_html, extract_text

WEB = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "web"
HELD_OUT, PARTS = 0, 5  # as in tools/train_main_text.py
SHINGLE, SHARED = 8, 0.2  # words; of those of the shorter page, from which on two pages are in one part
_EXPLAINED = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
_WORD = re.compile(r"\w+")
_COLUMNS = ("word_f1", "gram_f1", "precision", "recall", "f1")


class GoldPage(NamedTuple):
    """A page whose main text is known."""

    host: str
    html: str
    gold: str
    gold_html: str


class SegmentPage(NamedTuple):
    """A page of whose main text some segments are known, and some that are not in it."""

    host: str
    html: str
    wanted: list[str]
    unwanted: list[str]


def parts(pages: Sequence[GoldPage | SegmentPage]) -> list[int]:
    """The part that each page is in: pages of one site, and pages that share a fifth of their text, are in one."""
    first = groups(pages)
    return [
        zlib.crc32(min(pages[i].host for i in np.flatnonzero(first == group)).encode()) % PARTS
        for group in first
    ]


def groups(pages: Sequence[GoldPage | SegmentPage]) -> npt.NDArray[np.int64]:
    """The number of the first page of each page's group; many of the pages with gold text are variants of one page."""
    first = np.arange(len(pages))

    def join(one: int, other: int) -> None:
        a, b = sorted((first[one], first[other]))
        first[first == b] = a

    sites: dict[str, int] = {}
    holders: dict[int, list[int]] = {}
    sizes = []
    for number, page in enumerate(pages):
        host = page.host.lower()
        join(number, sites.setdefault(host.split(".")[-2] if "." in host else host, number))
        words = _WORD.findall(extract_text(page.html, "all_text").lower())
        shingles = {hash(tuple(words[at : at + SHINGLE])) for at in range(len(words) - SHINGLE + 1)}
        sizes.append(len(shingles))
        for shingle in shingles:
            holders.setdefault(shingle, []).append(number)
    shared = Counter(pair for held in holders.values() if len(held) > 1 for pair in combinations(held, 2))
    for (one, other), count in shared.items():
        if count > SHARED * min(sizes[one], sizes[other]):
            join(one, other)
    return first


def segment_pages(folder: Path) -> list[SegmentPage]:
    """The pages of `trafilatura_eval`; raises `FileNotFoundError` without it."""
    pages = []
    for url, entry in json.loads((folder / "evaldata.json").read_text(encoding="utf-8")).items():
        file = folder / "html" / f"{entry['file']}.gz"
        if file.exists():
            page = decode_html(gzip.decompress(file.read_bytes()), None).text
            host = urlsplit(url).netloc.removeprefix("www.")
            pages.append(SegmentPage(host, page, entry["with"], entry["without"]))
    return pages


def gold_pages(folder: Path) -> list[GoldPage]:
    """The pages of `readability_test_pages`; what is in their names before a digit or `-` counts as the host."""
    pages = []
    for place in sorted(path.parent for path in folder.glob("*/source.html.gz")):
        page = decode_html(gzip.decompress((place / "source.html.gz").read_bytes()), None).text
        gold = decode_html(gzip.decompress((place / "expected.html.gz").read_bytes()), "utf-8").text
        host = re.split(r"[-\d]", place.name)[0] or place.name
        pages.append(GoldPage(host, page, extract_text(gold, "all_text"), gold))
    return pages


class Judged(NamedTuple):
    """Of a page with gold text the F1 of words and runs of four; of another its segments: found, missed, and those that are wrong."""

    word_f1: float | None
    gram_f1: float | None
    found: int = 0
    missed: int = 0
    wrong: int = 0


def judged(text: str, page: GoldPage | SegmentPage) -> Judged:
    """How well a text is the main text of a page."""
    if isinstance(page, GoldPage):
        ours, gold = _WORD.findall(text.lower()), _WORD.findall(page.gold.lower())
        return Judged(_overlap(ours, gold, 1), _overlap(ours, gold, 4))
    squeezed = _squeeze(text)
    hits = sum(_squeeze(segment) in squeezed for segment in page.wanted)
    return Judged(
        None,
        None,
        hits,
        len(page.wanted) - hits,
        sum(_squeeze(segment) in squeezed for segment in page.unwanted),
    )


def summary(pages: Sequence[Judged]) -> dict[str, float]:
    """word_f1, gram_f1 (means over pages with gold text), and precision, recall and f1 of segments."""
    words = [page.word_f1 for page in pages if page.word_f1 is not None]
    grams = [page.gram_f1 for page in pages if page.gram_f1 is not None]
    found, missed, wrong = (sum(page[field] or 0 for page in pages) for field in (2, 3, 4))
    precision, recall = found / max(found + wrong, 1), found / max(found + missed, 1)
    return {
        "word_f1": sum(words) / max(len(words), 1), "gram_f1": sum(grams) / max(len(grams), 1),
        "precision": precision, "recall": recall, "f1": _harmonic(precision, recall),
    }  # fmt: skip


def scores(texts: Sequence[str], pages: Sequence[GoldPage | SegmentPage]) -> dict[str, float]:
    """The `summary` of pages with these texts."""
    return summary([judged(text, page) for text, page in zip(texts, pages, strict=True)])


def _squeeze(text: str) -> str:
    """Without differences of white space, which extractors lay out as they like."""
    return " ".join(text.split())


def _overlap(ours: list[str], gold: list[str], size: int) -> float:
    """F1 of the multisets of runs of `size` words."""
    a, b = (Counter(zip(*(words[k:] for k in range(size)), strict=False)) for words in (ours, gold))
    total = a.total() + b.total()
    return 2 * (a & b).total() / total if total else 1.0


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0


def extractors() -> dict[str, Callable[[str], str]]:
    """Name -> page to main text."""
    import trafilatura
    from resiliparse.parse.html import HTMLTree

    from corpusmill.pipeline.ingest.readers.main_text.extract import main_text

    def fast(page: str) -> str:
        return trafilatura.extract(page, include_comments=False, include_tables=True, fast=True) or ""

    return {
        "main_text": lambda page: main_text(HTMLTree.parse(page)),
        "main_text, one look": lambda page: main_text(HTMLTree.parse(page), twice=False),
        "resiliparse": lambda page: extract_text(page, "resiliparse"),
        "all_text": lambda page: extract_text(page, "all_text"),
        "trafilatura": lambda page: extract_text(page, "trafilatura"),
        "trafilatura, fast": fast,
    }


def measure(data: Path = WEB) -> dict[str, Any]:
    """Number of pages, of those held out, MB of HTML, and name -> (all pages, held-out pages, MB/s).

    Raises `FileNotFoundError` if the sets are not at `data`.
    """
    pages: list[GoldPage | SegmentPage] = [
        *segment_pages(data / "trafilatura_eval"), *gold_pages(data / "readability_test_pages")
    ]  # fmt: skip
    held_out = [i for i, part in enumerate(parts(pages)) if part == HELD_OUT]
    size = sum(len(page.html.encode()) for page in pages) / 1e6
    rows = {}
    for name, extractor in extractors().items():
        extractor(pages[0].html)  # imports and first-use tables are not the extractor's speed
        start = time.process_time()
        texts = [extractor(page.html) for page in pages]
        seconds = time.process_time() - start
        some = scores([texts[i] for i in held_out], [pages[i] for i in held_out])
        rows[name] = (scores(texts, pages), some, size / seconds)
    return {"pages": len(pages), "held_out": len(held_out), "html_mb": size, "rows": rows}


def main(show: Callable[[str], None] = print) -> None:
    """Print the figures as a Markdown table, or one line on why there are none."""
    try:
        figures = measure()
    except FileNotFoundError:
        show("Not measured: the sets `web/trafilatura_eval` and `web/readability_test_pages` are not here.")
        return
    versions = ", ".join(f"{name} {version(name)}" for name in ("resiliparse", "trafilatura"))
    counts = f"{figures['pages']} real pages, {figures['held_out']} of them held out, {figures['html_mb']:.1f} MB of HTML"
    show(f"{counts}; {versions}. {_EXPLAINED}")
    show("")
    show("| held out | word F1 | 4-gram F1 | segment precision | recall | F1 | MB/s |")
    show("|---|---:|---:|---:|---:|---:|---:|")
    for name, (_, some, speed) in figures["rows"].items():
        show(f"| {name} | {' | '.join(f'{some[key]:.3f}' for key in _COLUMNS)} | {speed:.1f} |")
    show("")
    show(
        "| all pages, by those that learned from none | word F1 | 4-gram F1 | segment precision | recall | F1 |"
    )
    show("|---|---:|---:|---:|---:|---:|")
    for name, (everything, _, _) in figures["rows"].items():
        if not name.startswith("main_text"):
            show(f"| {name} | {' | '.join(f'{everything[key]:.3f}' for key in _COLUMNS)} |")


if __name__ == "__main__":
    main()
