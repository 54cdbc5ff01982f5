"""Reading each input format, in MB/s of one core, beside the reader that people would use.

Ours is all of `ingest` for the file: records found, lengths proven, encodings and control characters mended, ids and hashes, tables
of documents (PDFium in a process of its own, whose start counts); `its reader alone` is without cleaning, ids and hashes. A peer gives its texts as Python strings, or (pyarrow) as a table, and checks nothing. One thread; CPU seconds, the
median of several rounds, in each of which every reader has its turn on the same file.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import resource
import statistics
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import zstandard

from bench import _format_files, natural
from bench._fuzz_check import read, reading_of
from corpusmill.pipeline.ingest.pdf.process import end_idle
from corpusmill.pipeline.ingest.readers import read_file
from corpusmill.pipeline.ingest.records import Batch, Document
from corpusmill.schemas.stages import IngestParams

ROUNDS = 3
OURS = "ingest"
Reader = Callable[[Path], Any]


class Figure(NamedTuple):
    """MB are 10^6 bytes: of the file as stored, and of what it holds once decompressed."""

    stored_mb: float
    plain_mb: float
    seconds: float  # CPU, the median
    texts: int


def _ingest(path: Path) -> int:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    found = sum(len(read(file).texts) for file in files)
    end_idle()
    return found


def _events(path: Path) -> int:
    found = 0
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        for event in read_file(reading_of(file, IngestParams(), Counter())):
            found += len(event.table) if isinstance(event, Batch) else isinstance(event, Document)
    end_idle()
    return found


def _orjson(opened: Callable[[Path], Any]) -> Reader:
    def run(path: Path) -> int:
        with opened(path) as file:
            return len([orjson.loads(line)["text"] for line in file])

    return run


def _zstd(path: Path) -> Any:
    return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(path.open("rb"), closefd=True))


def _json(path: Path) -> int:
    return len([row["text"] for row in json.loads(path.read_bytes())])


def _csv(delimiter: str) -> Reader:
    def run(path: Path) -> int:
        csv.field_size_limit(1 << 30)
        with path.open(newline="", encoding="utf-8") as file:
            return len([row["text"] for row in csv.DictReader(file, delimiter=delimiter)])

    return run


def _arrow_csv(delimiter: str) -> Reader:
    def run(path: Path) -> int:
        how = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        return len(pa.csv.read_csv(path, pa.csv.ReadOptions(use_threads=False, block_size=1 << 24), how))

    return run


def _arrow_json(path: Path) -> int:
    return len(pa.json.read_json(path, pa.json.ReadOptions(use_threads=False, block_size=1 << 24)))


def _parquet(path: Path) -> int:
    return len(pq.read_table(path, use_threads=False))


def _parquet_strings(path: Path) -> int:
    return len(pq.read_table(path, use_threads=False)["text"].to_pylist())


def _ipc(path: Path) -> int:
    with pa.OSFile(str(path)) as file:
        return len(pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all())


def _fastwarc(kind: str, take: Callable[[bytes], str]) -> Reader:
    def run(path: Path) -> int:
        from fastwarc.warc import ArchiveIterator, WarcRecordType

        with path.open("rb") as file:
            records = ArchiveIterator(file, record_types=getattr(WarcRecordType, kind))
            return len([take(record.reader.read()) for record in records])

    return run


def _warcio(kind: str, take: Callable[[bytes], str]) -> Reader:
    def run(path: Path) -> int:
        from warcio.archiveiterator import ArchiveIterator

        with path.open("rb") as file:
            return len([take(r.content_stream().read()) for r in ArchiveIterator(file) if r.rec_type == kind])

    return run


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _extracted(data: bytes) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return str(extract_plain_text(_decoded(data), main_content=True, alt_texts=False))


def _trafilatura(data: bytes) -> str:
    import trafilatura

    return trafilatura.extract(_decoded(data), include_comments=False) or ""


def _each_page(take: Callable[[bytes], str]) -> Reader:
    return lambda folder: len([take(file.read_bytes()) for file in sorted(folder.iterdir())])


def _tar(path: Path) -> int:
    with tarfile.open(path) as archive:
        files = (archive.extractfile(member) for member in archive)
        return len([file.read().decode() for file in files if file])


def _zip(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return len([archive.read(name).decode() for name in archive.namelist()])


def _pdfium(folder: Path) -> int:
    import pypdfium2

    found = 0
    for file in sorted(folder.iterdir()):
        document = pypdfium2.PdfDocument(file)
        found += bool("\n".join([page.get_textpage().get_text_range() for page in document]))
        document.close()
    return found


def _epub(folder: Path) -> int:
    found = 0
    for file in sorted(folder.iterdir()):
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith(".xhtml")]
            found += bool("\n".join([_all_text(archive.read(name)) for name in names]))
    return found


def _all_text(data: bytes) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    return str(extract_plain_text(_decoded(data), main_content=False, alt_texts=False))


def _docx(folder: Path) -> int:
    import docx

    files = sorted(folder.iterdir())
    return sum(bool("\n".join([p.text for p in docx.Document(str(file)).paragraphs])) for file in files)


def _cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _element_tree(path: Path) -> int:
    found = 0
    with bz2.open(path) as file:
        for _, element in ElementTree.iterparse(file):
            if element.tag.endswith("}page"):
                found += element.findtext("{*}revision/{*}text") is not None
                element.clear()
    return found


def _open(path: Path) -> Any:
    return path.open("rb")


READERS: dict[str, dict[str, Reader]] = {
    "jsonl": {"orjson, line by line": _orjson(_open), "pyarrow.json": _arrow_json},
    "jsonl.gz": {"gzip and orjson": _orjson(gzip.open)},
    "jsonl.zst": {"zstandard and orjson": _orjson(_zstd)},
    "json": {"json.loads": _json},
    "csv": {"csv": _csv(","), "pyarrow.csv": _arrow_csv(",")},
    "tsv": {"csv": _csv("\t"), "pyarrow.csv": _arrow_csv("\t")},
    "parquet": {"pyarrow.parquet, a table": _parquet, "pyarrow.parquet, strings": _parquet_strings},
    "arrow": {"pyarrow.ipc, a table": _ipc},
    "html": {"resiliparse": _each_page(_extracted), "trafilatura": _each_page(_trafilatura)},
    "tar": {"tarfile": _tar}, "zip": {"zipfile": _zip},
    "pdf": {"pypdfium2": _pdfium}, "epub": {"zipfile and resiliparse": _epub}, "docx": {"python-docx": _docx},
    "warc": {"fastwarc": _fastwarc("response", _decoded), "fastwarc and resiliparse": _fastwarc("response", _extracted),
             "warcio": _warcio("response", _decoded), "warcio and resiliparse": _warcio("response", _extracted)},
    "warc.gz": {"fastwarc": _fastwarc("response", _decoded), "fastwarc and resiliparse": _fastwarc("response", _extracted),
                "warcio": _warcio("response", _decoded), "warcio and resiliparse": _warcio("response", _extracted)},
    "wet.gz": {"fastwarc": _fastwarc("conversion", _decoded), "warcio": _warcio("conversion", _decoded)},
    "mediawiki (xml.bz2)": {"bz2 and ElementTree, markup left": _element_tree},
}  # fmt: skip


def _plain_bytes(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir())
    opened: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".zst": _zstd}
    if path.suffix == ".parquet":
        about = pq.ParquetFile(path).metadata
        return sum(about.row_group(n).total_byte_size for n in range(about.num_row_groups))
    if path.suffix == ".arrow":
        with pa.OSFile(str(path)) as file:
            return int(pa.ipc.open_file(file).read_all().nbytes)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    with opened.get(path.suffix, _open)(path) as file:
        return sum(len(block) for block in iter(lambda: file.read(1 << 20), b""))


def measure(rounds: int = ROUNDS) -> dict[str, dict[str, Figure]]:
    """format -> reader -> its figure. Raises `FileNotFoundError` without the real text."""
    figures: dict[str, dict[str, Figure]] = {}
    with tempfile.TemporaryDirectory() as place:
        for name, path in _format_files.write(Path(place)).items():
            readers = {OURS: _ingest, "ingest, its reader alone": _events, **READERS[name]}
            seconds: dict[str, list[float]] = {reader: [] for reader in readers}
            found: dict[str, int] = {}
            for number in range(rounds + 1):  # the first imports and warms up
                for reader, run in readers.items():
                    start = _cpu()
                    found[reader] = run(path)
                    if number:
                        seconds[reader].append(_cpu() - start)
            plain = _plain_bytes(path) / 1e6
            stored = plain if path.is_dir() else path.stat().st_size / 1e6
            figures[name] = {
                reader: Figure(stored, plain, statistics.median(times), found[reader])
                for reader, times in seconds.items()
            }
    return figures


def main() -> None:
    """Print the table."""
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    pa.set_cpu_count(1)
    print(f"{' '.join((__doc__ or '').split())} Rounds: {ROUNDS}.\n")
    print("| format | reader | texts | MB/s as stored | MB/s decompressed | time beside ingest's |")
    print("|---|---|---:|---:|---:|---:|")
    for name, readers in measure().items():
        ours = readers[OURS].seconds
        for reader, figure in readers.items():
            speeds = f"{figure.stored_mb / figure.seconds:.1f} | {figure.plain_mb / figure.seconds:.1f}"
            print(f"| {name} | {reader} | {figure.texts:,} | {speeds} | {figure.seconds / ours:.2f} |")


if __name__ == "__main__":
    main()
