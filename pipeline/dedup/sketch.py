"""First step, per partition: what later steps need of each document, signatures, and band keys by range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import text_hash
from corpusmill.pipeline.dedup.job import BAND, I64, PLANTED, PLANTED_PART, Job, copy_fields, survivor_order
from corpusmill.pipeline.dedup.key_groups import columns_needed, order
from corpusmill.pipeline.dedup.quality.planted import PLANTED as PLANTED_RECORD
from corpusmill.pipeline.dedup.quality.planted import Planted, choose, plant
from corpusmill.pipeline.dedup.quality.recall import draw, sample_records
from corpusmill.pipeline.engine import shuffle
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.shuffle import Done, File, Records, Slice
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text import minhash
from corpusmill.pipeline.text.buffers import one_array
from corpusmill.pipeline.text.byte_hashes import text_keys
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.pipeline.text.word_hashes import mix64
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.tables import DOCUMENTS

U64 = npt.NDArray[np.uint64]

WINNOW = 16  # texts with a run of so many shingles in common share a fingerprint
CONTAINED = np.uint64(0xC0)  # keeps the keys of fingerprints apart from those of bands


@dataclass(frozen=True)
class Sketched:
    """A partition, and the rows in it that an earlier pass removed."""

    index: int
    partition: Partition
    gone: Sequence[Slice] = ()


def sketch(job: Job, item: Sketched) -> Done:
    """Publishes, for the partition:

    - `docs`: a record per document, by key, then in survivor order; for this partition's own use;
    - `texts`: the best documents of each key, cut by ranges of the key;
    - `bands`: a `BAND` record per distinct text and band, cut by ranges of the band's key;
    - `sample` and `planted`: the partition's share of what recall is measured on.
    """
    name = f"sketch/{item.index:06d}"
    inputs = [item.index, item.partition.name, item.partition.xxh3, *shuffle.hashes_of(item.gone)]
    key = hash_json([job.key, "sketch", *inputs])
    return shuffle.once(job.work, name, key, lambda: _sketch(job, item, name, key))


def urls(job: Job, item: Sketched) -> Done:
    """The `docs` and `texts` of the documents that have a URL, keyed by it."""
    key = hash_json([job.key, "urls", item.index, item.partition.name, item.partition.xxh3])
    name = f"urls/{item.index:06d}"
    return shuffle.once(job.work, name, key, lambda: _urls(job, item, name, key))


def _urls(job: Job, item: Sketched, name: str, key: str) -> Done:
    docs = item.partition.read([*columns_needed(job.params), "text_hash", "url"])
    rows = np.flatnonzero(pc.is_valid(docs["url"]).to_numpy()).astype(np.int64)
    found = _documents(job, item, docs, rows, *text_keys(normal_urls(one_array(docs["url"])), rows))
    return group_files(job, name, key, found, np.zeros(len(found), np.int64), {}, {})


def normal_urls(urls: pa.Array) -> pa.Array:
    """URLs that name the same page made equal: no scheme, fragment, default port or final slash; the host in
    lower case."""
    urls = pc.utf8_trim_whitespace(urls)
    urls = pc.replace_substring_regex(urls, r"^(?:[A-Za-z][A-Za-z0-9+.\-]*:)?//", "")
    urls = pc.replace_substring_regex(urls, r"(?s)#.*", "")
    host = pc.utf8_lower(pc.struct_field(pc.extract_regex(urls, r"^(?P<host>[^/?]*)"), ["host"]))
    rest = pc.replace_substring_regex(urls, r"^[^/?]*", "")
    host = pc.replace_substring_regex(host, r":(?:80|443)$", "")
    return pc.binary_join_element_wise(host, pc.replace_substring_regex(rest, r"/$", ""), "")


def _sketch(job: Job, item: Sketched, name: str, key: str) -> Done:
    docs = item.partition.read([*columns_needed(job.params), "text_hash"])
    if len(docs) >= 2**31 or item.index >= PLANTED_PART:
        raise WorkError(f"partition {item.partition.name}: more documents than a location can number")
    rows = np.arange(len(docs), dtype=np.int64)
    gone = shuffle.read_slices(job.work, item.gone, np.dtype("<i8")) & 0xFFFFFFFF
    rows = np.delete(rows, gone)
    text = one_array(docs["text"])
    shingling = Shingling(job.params, job.banding.bands * job.banding.rows)
    hi, lo = (column[rows] for column in shuffle.words(one_array(docs["text_hash"])))
    if job.params.normalized:
        norm_hi, norm_lo = shingling.fingerprints(text, rows)
        wordless = (norm_hi == 0) & (norm_lo == 0)
        hi, lo = np.where(wordless, hi, norm_hi), np.where(wordless, lo, norm_lo)
    found = _documents(job, item, docs, rows, hi, lo)
    counters = {"docs": len(docs)}
    sources = docs["source"].value_counts().to_pylist()
    counters.update({f"source/{entry['values']}/docs": entry["counts"] for entry in sources})
    files: dict[str, File] = {}
    shingles = np.zeros(len(found), np.int64)
    if job.params.minhash:
        new = shuffle.starts_of(found["hi"], found["lo"])
        # The lowest location of a text in the partition stands for all of its copies.
        distinct = found[np.lexsort((found["location"], found["lo"], found["hi"]))][new]
        signed = shingling.sign(text, distinct["location"] & 0xFFFFFFFF)
        shingles = signed.counts[np.cumsum(new) - 1]
        some = np.flatnonzero(signed.counts > 0)
        firsts = np.zeros(len(some), job.text)
        copy_fields(distinct[some], firsts, job.doc.names)
        firsts["shingles"] = signed.counts[some]
        extra: list[Records] = []
        which = firsts[choose(firsts["hi"], job.planted_share)]
        if len(which):
            made = plant(text, which["location"] & 0xFFFFFFFF, which["hi"], shingling, job.banding)
            planted, bands = _plant(job, item.index, name, which, made, shingling)
            files |= planted
            extra.append(bands)
        bands = _bands(job, signed.signatures[some], firsts)
        if job.params.containment is not None:
            extra.append(_fingerprints(text, firsts, shingling))
        files["bands"] = write_bands(job, name, np.concatenate([bands, *extra]))
        sample = draw(sample_records(signed.draws[some], firsts), job.params.sample)
        files["sample"] = shuffle.write(job.work, f"{name}.sample", sample)
        counters["capped"] = int(signed.capped.sum())
    counters["short"] = int((shingles == 0).sum()) if job.params.minhash else 0
    return group_files(job, name, key, found, shingles, files, counters)


def _documents(job: Job, item: Sketched, docs: pa.Table, rows: I64, hi: U64, lo: U64) -> Records:
    """The documents at `rows` as records, by key, then in survivor order."""
    found = np.zeros(len(rows), job.doc)
    found["hi"], found["lo"] = hi, lo
    id_hi, id_lo = shuffle.words(one_array(docs["doc_id"]))
    found["id_hi"], found["id_lo"] = id_hi[rows], id_lo[rows]
    found["text"] = shuffle.words(one_array(docs["text_hash"]))[0][rows]
    found["location"] = (item.index << 32) + rows
    names = one_array(docs["source"]).dictionary_encode()
    hashed = np.array([source_hash(source) for source in names.dictionary.to_pylist()], np.uint64)
    if len(rows):
        found["source"] = hashed[names.indices.to_numpy()][rows]
        found["order"] = order(job.params, dict(job.priorities), item.partition, docs, rows)
    return found[survivor_order(found, found["hi"], found["lo"])]


def group_files(
    job: Job, name: str, key: str, found: Records, shingles: I64, files: dict[str, File],
    counters: dict[str, int],
) -> Done:  # fmt: skip
    new = shuffle.starts_of(found["hi"], found["lo"])
    starts = np.flatnonzero(new)
    sizes = np.diff(np.r_[starts, len(found)])
    place = np.arange(len(found)) - np.repeat(starts, sizes)
    # As many as may stay; two, so that each of a group that goes as a whole can name another.
    sent = place < min(max(2, job.keep), len(found)) if job.keep not in (1.0, np.inf) else new
    texts = np.zeros(int(sent.sum()), job.text)
    copy_fields(found[sent], texts, job.doc.names)
    texts["shingles"] = shingles[sent]
    head = new[sent]
    texts["documents"][head] = sizes
    if len(found):
        texts["protected"][head] = np.add.reduceat(found["order"][:, 0] == 0, starts)
    ranges = shuffle.in_range(texts["hi"], job.text_ranges)
    files = files | {
        "docs": shuffle.write(job.work, f"{name}.docs", found),
        "texts": shuffle.write(job.work, f"{name}.texts", texts, ranges),
    }
    return Done(key=key, files=files, counters=counters)


def source_hash(name: str) -> int:
    """What records hold in place of a source's name."""
    return xxhash.xxh3_64_intdigest(name.encode())


def _bands(job: Job, signed: npt.NDArray[np.unsignedinteger], texts: Records, planted: int = 0) -> Records:
    """Unsorted band records. `text` is 63 bits of the text's hash; the top bit marks what was planted, so
    that within a bucket it comes after all that is real and changes nothing there."""
    keys = minhash.band_keys(signed, job.banding.bands, job.banding.rows)
    bands = np.empty(keys.size, BAND)
    bands["key"] = keys.ravel()
    bands["text"] = np.repeat((texts["hi"] >> np.uint64(1)) | np.uint64(planted << 63), job.banding.bands)
    bands["location"] = np.repeat(texts["location"], job.banding.bands)
    return bands


def _fingerprints(text: pa.Array, texts: Records, shingling: Shingling) -> Records:
    """Band records of winnowed shingles: a short text inside a long one shares some of them, though rarely a
    band of signatures."""
    bounds, hashes = shingling.winnow(text, texts["location"] & 0xFFFFFFFF, WINNOW)
    found = np.empty(len(hashes), BAND)
    found["key"] = mix64(hashes ^ CONTAINED)
    found["text"] = np.repeat(texts["hi"] >> np.uint64(1), np.diff(bounds))
    found["location"] = np.repeat(texts["location"], np.diff(bounds))
    return found


def write_bands(job: Job, name: str, bands: Records) -> File:
    """Publish band records by key, then text, cut by range."""
    bands = bands[np.lexsort((bands["text"], bands["key"]))]
    return shuffle.write(job.work, f"{name}.bands", bands, shuffle.in_range(bands["key"], job.band_ranges))


def _plant(
    job: Job, index: int, name: str, originals: Records, made: Planted, shingling: Shingling
) -> tuple[dict[str, File], Records]:
    """Publish planted texts as a partition of documents, and their records; (these files, their bands)."""
    row = {int(place): i for i, place in enumerate((originals["location"] & 0xFFFFFFFF).tolist())}
    origin = originals[[row[int(place)] for place in made.original]]
    texts = made.texts.to_pylist()
    hashes = [text_hash(text) for text in texts]
    columns = {field.name: pa.nulls(len(texts), field.type) for field in DOCUMENTS}
    columns |= {
        "doc_id": pa.array(hashes, pa.binary(16)), "text_hash": pa.array(hashes, pa.binary(16)),
        "text": made.texts, "source": pa.repeat("planted", len(texts)),
        "locator": pa.repeat("planted", len(texts)),
    }  # fmt: skip
    docs = publish_table(job.work, f"planted/documents/{index:06d}.parquet", pa.table(columns, DOCUMENTS))
    records = np.zeros(len(texts), PLANTED_RECORD)
    records["key"], records["original"] = origin["hi"], origin["location"]
    records["planted"] = PLANTED + (index << 32) + np.arange(len(texts))
    for field in ("target", "jaccard", "hit"):
        records[field] = getattr(made, field)
    signed = shingling.sign(made.texts, np.arange(len(texts), dtype=np.int64)).signatures
    nodes = np.zeros(len(texts), job.text)
    nodes["hi"], nodes["lo"] = shuffle.words(pa.array(hashes, pa.binary(16)))
    nodes["location"] = records["planted"]
    files = {"planted": shuffle.write(job.work, f"{name}.planted", records), "planted_docs": File(file=docs)}
    return files, _bands(job, signed, nodes, planted=1)
