"""HTML to text: accuracy and speed of the extractors that `ingest` offers, on two sets of real pages.

Segment columns: strings that the main text must hold, and strings that it must not, up to three of each a
page (trafilatura's evaluation set). Word F1: the multiset of words against the expected article, mean over
pages (Readability's test pages, whose gold text is Readability.js's own accepted output, so it favours
extractors like it). Speed: both sets, one core, parsing and the page's title included.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from corpusmill.pipeline.ingest.readers.html import Extractor, decode_html, extract_text

WEB = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "web"
EXTRACTORS: tuple[Extractor, ...] = ("resiliparse", "all_text", "trafilatura")
_EXPLAINED = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
_WORD = re.compile(r"\w+")


def measure(data: Path = WEB) -> dict[str, Any]:
    """extractor -> segment precision, recall, F1, word F1, and MB/s of HTML on one core, both sets together.

    Raises `FileNotFoundError` if the sets are not at `data`.
    """
    segments = _segment_pages(data / "trafilatura_eval")
    words = _word_pages(data / "readability_test_pages")
    pages = [page for page, _, _ in segments] + [page for page, _ in words]
    size = sum(len(page.encode()) for page in pages)
    figures: dict[str, Any] = {"pages": len(pages), "html_mb": size / 1e6}
    for extractor in EXTRACTORS:
        extract_text(pages[0], extractor)  # imports and first-use tables are not the extractor's speed
        start = time.process_time()
        texts = [extract_text(page, extractor)[0] for page in pages]
        seconds = time.process_time() - start
        scores = _segment_scores(texts[: len(segments)], segments)
        by_words = [
            _word_f1(text, gold) for text, (_, gold) in zip(texts[len(segments) :], words, strict=True)
        ]
        figures[extractor] = {
            **scores, "word_f1": sum(by_words) / len(by_words), "mb_per_s": size / 1e6 / seconds,
            "ms_per_page": 1e3 * seconds / len(pages),
        }  # fmt: skip
    return figures


def _segment_pages(folder: Path) -> list[tuple[str, list[str], list[str]]]:
    """(page, segments wanted, segments unwanted)."""
    pages = []
    for entry in json.loads((folder / "evaldata.json").read_text(encoding="utf-8")).values():
        file = folder / "html" / f"{entry['file']}.gz"
        if file.exists():
            page = decode_html(gzip.decompress(file.read_bytes()), None).text
            pages.append((page, entry["with"], entry["without"]))
    return pages


def _word_pages(folder: Path) -> list[tuple[str, str]]:
    """(page, expected text)."""
    pages = []
    for place in sorted(path.parent for path in folder.glob("*/source.html.gz")):
        page = decode_html(gzip.decompress((place / "source.html.gz").read_bytes()), None).text
        gold = decode_html(gzip.decompress((place / "expected.html.gz").read_bytes()), "utf-8").text
        pages.append((page, extract_text(gold, "all_text")[0]))
    return pages


def _segment_scores(texts: list[str], pages: list[tuple[str, list[str], list[str]]]) -> dict[str, float]:
    found = missed = wrong = 0
    for text, (_, wanted, unwanted) in zip(texts, pages, strict=True):
        squeezed = _squeeze(text)
        hits = sum(_squeeze(segment) in squeezed for segment in wanted)
        found += hits
        missed += len(wanted) - hits
        wrong += sum(_squeeze(segment) in squeezed for segment in unwanted)
    precision, recall = found / max(found + wrong, 1), found / max(found + missed, 1)
    return {"precision": precision, "recall": recall, "f1": _harmonic(precision, recall)}


def _squeeze(text: str) -> str:
    """Without differences of white space, which extractors lay out as they like."""
    return " ".join(text.split())


def _word_f1(text: str, gold: str) -> float:
    ours, theirs = Counter(_WORD.findall(text.lower())), Counter(_WORD.findall(gold.lower()))
    common = (ours & theirs).total()
    if not theirs.total():
        return float(not ours.total())
    return _harmonic(common / max(ours.total(), 1), common / theirs.total())


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0


def main(show: Callable[[str], None] = print) -> None:
    """Print the figures as a Markdown table, or one line on why there are none."""
    try:
        figures = measure()
    except FileNotFoundError:
        show("Not measured: the sets `web/trafilatura_eval` and `web/readability_test_pages` are not here.")
        return
    versions = ", ".join(f"{name} {version(name)}" for name in ("resiliparse", "trafilatura"))
    show(f"{figures['pages']} real pages, {figures['html_mb']:.1f} MB of HTML; {versions}. {_EXPLAINED}")
    show("")
    show("| extractor | segment precision | recall | F1 | word F1 | MB/s | ms per page |")
    show("|---|---|---|---|---|---|---|")
    for name in EXTRACTORS:
        row = figures[name]
        accuracy = " | ".join(f"{row[key]:.3f}" for key in ("precision", "recall", "f1", "word_f1"))
        show(f"| {name} | {accuracy} | {row['mb_per_s']:.1f} | {row['ms_per_page']:.2f} |")


if __name__ == "__main__":
    main()
