"""The documentation crawl: HTML pages as a WARC/1.1 file, one gzip member a record.

The pages are real and as their packages hold them; the crawl around them (dates, HTTP headers, the wrong
charset headers below) is made, with every byte fixed by this file.
"""

from __future__ import annotations

import datetime
import io
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastwarc.warc import WarcRecord, WarcRecordType

from .common import Record, garble, gz, rank, write

POSTGRES = "usr/share/doc/postgresql-doc-15/html"
SQLITE = "usr/share/doc/sqlite3"
HANDBOOK = "usr/share/doc/debian-handbook/html"
START = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
# Well translated pages, so that the language filter sees the language and not the English left in between.
TRANSLATED = (
    "case-study",
    "sect.after-first-boot",
    "sect.creating-accounts",
    "sect.hotplug",
    "sect.dhcp",
    "sect.kernel-role-and-tasks",
    "sect.syslog",
    "sect.user-space",
    "short-remedial-course",
    "sect.regular-upgrades",
    "sect.selinux",
    "sect.x509-cert",
)
# In every language's share: the disguises below name them.
FIRST = ("sect.syslog", "sect.hotplug", "sect.user-space")
LANGUAGES = {
    "fr-FR": 8,
    "de-DE": 9,
    "es-ES": 9,
    "it-IT": 7,
    "pt-BR": 9,
    "nb-NO": 9,
    "ru-RU": 7,
    "ar-MA": 5,
    "ja-JP": 3,
    "zh-CN": 3,
}
# A translation that has hardly begun: natural near copies of the English pages of the same name.
UNTRANSLATED = ("da-DK", ("sect.hotplug", "sect.syslog", "sect.release-lifecycle", "sect.regular-upgrades"))
ENGLISH_PAGES = 42


class Disguise(NamedTuple):
    """How a page's bytes are encoded, and what its HTTP header and its own <meta> say about it."""

    page: str
    bytes_are: str
    header_says: str | None
    meta_says: str | None


DISGUISES = (
    # The header is right: nothing to repair, but the bytes are not UTF-8.
    Disguise("fr-FR/stable/sect.syslog.html", "iso-8859-1", "ISO-8859-1", "ISO-8859-1"),
    Disguise("de-DE/stable/sect.syslog.html", "windows-1252", "windows-1252", "windows-1252"),
    Disguise("pt-BR/stable/case-study.html", "windows-1252", "windows-1252", None),
    Disguise("ru-RU/stable/sect.syslog.html", "windows-1251", "windows-1251", "windows-1251"),
    Disguise("ja-JP/stable/sect.user-space.html", "euc_jp", "EUC-JP", "EUC-JP"),
    Disguise("en-US/stable/sect.release-lifecycle.html", "windows-1252", "windows-1252", "windows-1252"),
    # The header is missing.
    Disguise("it-IT/stable/sect.hotplug.html", "windows-1252", None, "windows-1252"),
    Disguise("es-ES/stable/sect.syslog.html", "iso-8859-1", None, None),
    Disguise("nb-NO/stable/sect.syslog.html", "utf-8", None, None),
    Disguise("en-US/stable/sect.hotplug.html", "windows-1252", None, None),
    # The header is wrong.
    Disguise("fr-FR/stable/sect.hotplug.html", "utf-8", "ISO-8859-1", "UTF-8"),
    Disguise("de-DE/stable/sect.user-space.html", "windows-1252", "UTF-8", "UTF-8"),
    Disguise("pt-BR/stable/sect.user-space.html", "utf-8", "windows-1252", None),
    Disguise("en-US/stable/sect.syslog.html", "windows-1252", "UTF-8", "UTF-8"),
    Disguise("en-US/stable/sect.regular-upgrades.html", "utf-8", "ISO-8859-1", None),
)
# UTF-8 read as windows-1252 and written as UTF-8 again: the header is right, the text is not.
DOUBLE_ENCODED = "en-US/stable/sect.kernel-role-and-tasks.html"
COMPRESSED = ("en-US/stable/sect.user-space.html", "about.html")  # Content-Encoding: gzip
CHUNKED = "15/sql-select.html"
FETCHED_TWICE = ("15/sql-insert.html", "lang.html", "en-US/stable/sect.hotplug.html")


class Page(NamedTuple):
    url: str
    name: str
    html: str


def pages(origin: Path) -> list[Page]:
    """An even sample of each package's pages, ordered by URL."""
    chosen: list[Page] = []

    def add(path: Path, prefix: str, name: str) -> None:
        chosen.append(Page(prefix + name, name, path.read_text("utf-8")))

    def sample(folder: Path, count: int, least: int, most: int, always: set[str]) -> Iterator[Path]:
        found = sorted(folder.glob("*.html"), key=lambda p: (p.name not in always, rank(p.name)))
        fitting = [p for p in found if p.name in always or least < p.stat().st_size < most]
        yield from fitting[:count]

    for path in sample(origin / POSTGRES, 230, 3_000, 70_000, {"sql-select.html", "sql-insert.html"}):
        add(path, "https://www.postgresql.org/docs/", f"15/{path.name}")
    for path in sample(origin / SQLITE, 105, 4_000, 90_000, {"about.html", "lang.html"}):
        add(path, "https://www.sqlite.org/", path.name)
    book = "https://debian-handbook.info/browse/"
    wanted = {d.page.split("/")[2] for d in DISGUISES if d.page.startswith("en-US")}
    wanted |= {DOUBLE_ENCODED.split("/")[2], COMPRESSED[0].split("/")[2]}
    for path in sample(origin / HANDBOOK / "en-US", ENGLISH_PAGES, 9_000, 120_000, wanted):
        add(path, book, f"en-US/stable/{path.name}")
    for language, count in LANGUAGES.items():
        order = sorted(TRANSLATED, key=lambda n: (n not in FIRST, n))
        for name in order[:count]:
            add(origin / HANDBOOK / language / f"{name}.html", book, f"{language}/stable/{name}.html")
    language, names = UNTRANSLATED
    for name in names:
        add(origin / HANDBOOK / language / f"{name}.html", book, f"{language}/stable/{name}.html")
    return sorted(chosen)


def encode(page: Page) -> tuple[bytes, str | None]:
    """The page's bytes as the server sent them, and the charset that its header names."""
    disguise = next((d for d in DISGUISES if d.page == page.name), None)
    if page.name == DOUBLE_ENCODED:
        return garble(page.html).encode(), "UTF-8"
    if disguise is None:
        return page.html.encode(), "UTF-8"
    html = re.sub(r"<\?xml[^>]*\?>\n?", "", page.html)
    meta = r'<meta http-equiv="Content-Type" content="text/html; charset=UTF-8"\s*/?>'
    if len(re.findall(meta, html)) != 1:
        raise ValueError(f"{page.name}: expected one <meta> that names the charset")
    said = f'<meta http-equiv="Content-Type" content="text/html; charset={disguise.meta_says}" />'
    html = re.sub(meta, said if disguise.meta_says else "", html)
    return html.encode(disguise.bytes_are, "xmlcharrefreplace"), disguise.header_says


class Crawl:
    """Writes records one after another, two seconds apart."""

    def __init__(self) -> None:
        self.out = io.BytesIO()
        self.count = 0

    def add(self, kind: WarcRecordType, url: str | None, block: bytes, mime: str, **extra: str) -> str:
        """Appends a record and returns its id, which the record's number and URL decide."""
        urn = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'corpusmill-example:{self.count}:{url}')}"
        record = WarcRecord()
        record.init_headers(record_type=kind)  # its random id and present date are replaced below
        record.headers["WARC-Record-ID"] = f"<{urn}>"
        moment = START + datetime.timedelta(seconds=2 * self.count)
        record.headers["WARC-Date"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        if url:
            record.headers["WARC-Target-URI"] = url
        for name, value in extra.items():
            record.headers[name.replace("_", "-")] = value
        record.headers["Content-Type"] = mime
        record.set_bytes_content(block)
        plain = io.BytesIO()
        record.write(plain, checksum_data=True)
        self.out.write(gz(plain.getvalue()))
        self.count += 1
        return urn

    def response(
        self, url: str, body: bytes, mime: str | None, status: str = "200 OK", **headers: str
    ) -> str:
        lines = [f"HTTP/1.1 {status}", "Server: nginx", "Date: Fri, 01 Mar 2024 00:00:00 GMT"]
        lines += [f"Content-Type: {mime}"] if mime else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if "Transfer_Encoding" not in headers:
            lines.append(f"Content-Length: {len(body)}")
        block = ("\r\n".join(lines) + "\r\n\r\n").encode() + body
        return self.add(WarcRecordType.response, url, block, "application/http; msgtype=response")

    def page(self, page: Page) -> str:
        body, charset = encode(page)
        mime = f"text/html; charset={charset}" if charset else "text/html"
        if page.name in COMPRESSED:
            return self.response(page.url, gz(body), mime, Content_Encoding="gzip")
        if page.name == CHUNKED:
            chunks = [body[i : i + 4096] for i in range(0, len(body), 4096)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in [*chunks, b""])
            return self.response(page.url, body, mime, Transfer_Encoding="chunked")
        return self.response(page.url, body, mime)


def docs(origin: Path, out: Path) -> int:
    crawl = Crawl()
    info = b"software: CorpusMill examples/corpus/build.py\r\nformat: WARC File Format 1.1\r\n"
    crawl.add(WarcRecordType.warcinfo, None, info, "application/warc-fields", WARC_Filename="docs.warc.gz")
    chosen = pages(origin)
    request = b"GET /docs/15/sql-select.html HTTP/1.1\r\nHost: www.postgresql.org\r\n\r\n"
    crawl.add(
        WarcRecordType.request,
        "https://www.postgresql.org/docs/15/sql-select.html",
        request,
        "application/http; msgtype=request",
    )
    robots = b"User-agent: *\nDisallow: /search\nDisallow: /account\n"
    crawl.response("https://www.postgresql.org/robots.txt", robots, "text/plain; charset=utf-8")
    image = (origin / SQLITE / "images/se.png").read_bytes()
    crawl.response("https://www.sqlite.org/images/se.png", image, "image/png")
    missing = b"<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>"
    crawl.response("https://www.sqlite.org/gone.html", missing, "text/html; charset=UTF-8", "404 Not Found")
    crawl.response(
        "https://www.sqlite.org/docs",
        b"",
        "text/html",
        "301 Moved Permanently",
        Location="https://www.sqlite.org/docs.html",
    )
    for page in chosen:
        urn = crawl.page(page)
    crawl.add(
        WarcRecordType.metadata,
        page.url,
        b"fetchTimeMs: 41\r\n",
        "application/warc-fields",
        WARC_Concurrent_To=f"<{urn}>",
    )
    again = [p for p in chosen if p.name in FETCHED_TWICE]
    for page in again:
        crawl.page(page)
    write(out / "docs/docs.warc.gz", crawl.out.getvalue())
    return len(chosen) + len(again)


def labels() -> Record:
    """What is odd in the crawl, for labels.json."""
    return {
        "encodings": [d._asdict() for d in DISGUISES],
        "double_encoded": [DOUBLE_ENCODED],
        "content_encoding_gzip": list(COMPRESSED),
        "transfer_encoding_chunked": [CHUNKED],
        "fetched_twice": list(FETCHED_TWICE),
        "mostly_untranslated": [f"{UNTRANSLATED[0]}/stable/{name}.html" for name in UNTRANSLATED[1]],
        "not_pages": ["warcinfo", "request", "metadata", "text/plain", "image/png", "404", "301"],
    }


def foreign_paragraphs(origin: Path) -> list[Record]:
    """Two stretches of the preface, which the WARC leaves out, in each language that has it translated."""
    found: list[Record] = []
    english = set(_paragraphs(origin / HANDBOOK / "en-US/preface.html"))
    for language in (
        "fr-FR",
        "de-DE",
        "es-ES",
        "it-IT",
        "pt-BR",
        "nb-NO",
        "id-ID",
        "ca-ES",
        "ru-RU",
        "ar-MA",
        "pl-PL",
        "nl-NL",
    ):
        texts = [t for t in _paragraphs(origin / HANDBOOK / language / "preface.html") if t not in english]
        texts = [t for t in texts if len(t) > 120]
        half = len(texts) // 2
        for number, part in enumerate((texts[: min(half, 3)], texts[half : half + 3])):
            if sum(map(len, part)) > 350:
                name = f"{language}/preface/{number}"
                found.append({"id": name, "language": language.split("-")[0], "text": "\n\n".join(part)})
    return found


def _paragraphs(path: Path) -> list[str]:
    blocks = re.findall(r'<div class="para">(.*?)</div>', path.read_text("utf-8"), re.DOTALL)
    texts = [" ".join(re.sub(r"<[^>]+>", "", b).split()) for b in blocks]
    return [t for t in texts if "&" not in t and t]
