"""Labelled texts for the shipped classifiers, out of the real data sets kept outside the repository."""

from __future__ import annotations

import csv
import gzip
import html
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from corpusmill.pipeline.filter.classifiers.labelled import Labelled


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSONL file, gzipped or not."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return (json.loads(line) for line in data.decode("utf-8").split("\n") if line.strip())


def one_class(name: str, texts: Iterable[str], positive: bool, licence: str, note: str = "") -> Labelled:
    """A set whose texts all have one label."""
    kept = [text for text in texts if text.strip()]
    return Labelled(name, kept, [positive] * len(kept), licence, note)


def without_tags(body: str) -> str:
    """Text of a post's HTML, code blocks left out."""
    body = re.sub(r"<pre.*?</pre>", " ", body, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", body))


def tweets(data: Path) -> Labelled:
    """Davidson et al. 2017: positive where annotators said hate speech or offensive language."""
    with (data / "toxicity/davidson_tweets/labeled_data.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [re.sub(r"\bRT\b|[!\"]{2,}", " ", html.unescape(row["tweet"])) for row in rows]
    return Labelled(
        "davidson_tweets", texts, [row["class"] != "2" for row in rows], "MIT",
        "Davidson et al. 2017, crowd labels; hate or offensive is toxic; known bias against African American"
        " English",
    )  # fmt: skip


def talk_pages(data: Path) -> Labelled:
    """Wikipedia talk page comments, crowd labels of the Wikipedia Detox project."""
    path = data / "toxicity/wikipedia_talk_toxicity/toxicity_nonfuzzed_testset.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return Labelled(
        "wikipedia_talk", [row["comment"] for row in rows], [row["toxic"] == "True" for row in rows],
        "text CC-BY-SA 3.0, labels CC0", "comments of talk pages, majority labels",
    )  # fmt: skip


def identity_templates(data: Path) -> Labelled:
    """Sentences from templates that name identities, toxic by their adjective alone."""
    path = data / "toxicity/identity_templates/en_sentence_templates_sample5000.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return Labelled(
        "identity_templates",
        [row["phrase"] for row in rows],
        [row["toxicity"] == "toxic" for row in rows],
        "Apache-2.0",
    )


def short_messages(data: Path) -> Labelled:
    """SMS: positive where spam."""
    lines = (data / "quality/sms_spam/sms_spam.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t", 1) for line in lines if "\t" in line]
    return Labelled(
        "sms_spam", [text for _, text in pairs], [label == "spam" for label, _ in pairs], "CC-BY 4.0 (UCI)"
    )


def speeches(data: Path) -> list[str]:
    """Paragraphs of State of the Union addresses."""
    records = json_lines(data / "natural/speeches_sotu/docs.jsonl.gz")
    return [part for record in records for part in blocks(record["text"], 1500)]


def abstracts(data: Path) -> list[str]:
    """Abstracts of computer science papers."""
    path = next((data / "natural/science_scitldr").glob("*.jsonl.gz"))
    return [record["abstract"] for record in json_lines(path)]


def medical_abstracts(data: Path) -> list[str]:
    """Biomedical abstracts."""
    path = next((data / "natural/science_pubmedqa").glob("*.jsonl"))
    return [record["context"].split("Question:")[0].removeprefix("Context:") for record in json_lines(path)]


def graded_news(data: Path) -> list[str]:
    """News articles rewritten for readers of English at three levels."""
    return [record["text"] for record in json_lines(data / "quality/onestop_english/texts.jsonl")]


def posts(data: Path) -> list[str]:
    """Questions and answers, mark-up left out."""
    folder = data / "natural/qa_stackexchange"
    return [
        without_tags(record["Body"])
        for path in sorted(folder.glob("*.jsonl.gz"))
        for record in json_lines(path)
    ]


def documentation(data: Path) -> list[str]:
    """The manual of a database, statements and code included: the first 6,000 characters of each page."""
    pages = json_lines(data / "natural/docs_postgresql/pages.jsonl.gz")
    return ["\n".join(_lines(page["html"].encode()))[:6000] for page in pages]


def questions(data: Path) -> list[str]:
    """The Perl FAQ, its code included."""
    files = sorted((data / "natural/faq_perl").glob("*.pod"))
    return [
        part for file in files for part in blocks(file.read_text(encoding="utf-8", errors="replace"), 2000)
    ]


def books(data: Path) -> list[str]:
    """Books of the 19th century, in pieces of about 3,000 characters."""
    folder = data / "natural/books_gutenberg"
    return [
        part
        for path in sorted(folder.glob("*.md"))
        for part in blocks(path.read_text(encoding="utf-8"), 3000)
    ]


def factbook(data: Path) -> list[str]:
    """Country entries of the World Factbook, as one text each."""
    path = next((data / "natural/encyclopedic_factbook").glob("*.jsonl.gz"))
    return ["\n".join(_texts(record["data"])) for record in json_lines(path)]


def encyclopedia(data: Path) -> list[str]:
    """Articles of English Wikipedia, mark-up mostly removed."""
    import bz2

    path = next((data / "natural/encyclopedic_enwiki_dump").glob("*.bz2"))
    raw = bz2.BZ2Decompressor().decompress(path.read_bytes()).decode("utf-8", "replace")
    pages = re.findall(r"<text[^>]*>(.*?)</text>", raw, flags=re.DOTALL)
    return [_plain_wiki(html.unescape(page)) for page in pages if not page.startswith("#REDIRECT")]


def web_pages(data: Path) -> Labelled:
    """English web pages in two: the article (positive), and all other lines of the page (negative)."""
    texts, positive = [], []
    for folder in sorted((data / "web/readability_test_pages").iterdir()):
        if not (folder / "expected.html.gz").exists():
            continue
        article = _lines(gzip.decompress((folder / "expected.html.gz").read_bytes()))
        known = set(article)
        rest = [
            line
            for line in _lines(gzip.decompress((folder / "source.html.gz").read_bytes()))
            if line not in known
        ]
        words = f" {' '.join(article)} ".lower()
        if words.count(" the ") < words.count(" ") / 100:
            continue  # not English
        for text, label in (("\n".join(article), True), ("\n".join(rest), False)):
            if text:
                texts.append(text)
                positive.append(label)
    return Labelled("web pages (readability)", texts, positive, "Apache-2.0, third-party pages")


def _lines(page: bytes) -> list[str]:
    """Text of a page, a line per block."""
    body = re.sub(
        r"(?is)<(script|style|noscript|svg|head)\b.*?</\1>|<!--.*?-->", " ", page.decode("utf-8", "replace")
    )
    body = re.sub(
        r"(?i)</?(p|div|li|ul|ol|h\d|br|tr|td|section|article|nav|header|footer|option)\b[^>]*>", "\n", body
    )
    lines = html.unescape(re.sub(r"<[^>]+>", "", body)).split("\n")
    return [clean for line in lines if (clean := " ".join(line.split()))]


def sentences(texts: Iterable[str], every: int) -> list[str]:
    """Every n-th sentence of 3 to 15 words: short text that is no tweet."""
    found = (part.strip() for text in texts for part in re.split(r"(?<=[.!?])\s+", text))
    return [part for part in found if 3 <= part.count(" ") + 1 <= 15][::every]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "text" and isinstance(item, str):
                yield without_tags(item)
            else:
                yield from _texts(item)


def blocks(text: str, size: int) -> list[str]:
    """Consecutive paragraphs, put together up to about `size` characters."""
    out, block = [], ""
    for part in re.split(r"\n\s*\n", text):
        block = f"{block}\n\n{part}" if block else part
        if len(block) >= size:
            out.append(block)
            block = ""
    return [*out, block] if block.strip() else out


def _plain_wiki(text: str) -> str:
    for _ in range(4):
        text = re.sub(r"\{\{[^{}]*\}\}|\{\|[^{}]*\|\}", " ", text)
    text = re.sub(r"<ref[^>]*/>|<ref.*?</ref>|<!--.*?-->|<[^>]+>", " ", text, flags=re.DOTALL)
    text = re.sub(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]|\[https?://\S+ ([^\]]*)\]", r"\1\2", text)
    return re.sub(r"'{2,}|={2,}", "", text)
