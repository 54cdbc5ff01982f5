"""First step, per partition: what later steps need of each document, signatures, and band keys by range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipeline.dedup.kernels import kernel
from pipeline.dedup.kernels.shingles import Shingle, one_array, permutations, sign
from pipeline.dedup.records import BAND, SAMPLE, TEXT, Done, File, Job, Records, once, words, write
from pipeline.stage import Partition
from schemas.errors import WorkError
from schemas.manifest import hash_json

SAMPLE_SIZE = 2_000
SAMPLE_CROWD = 8  # texts with one and the same draw: a template must not be the whole sample
NO_DATE = np.int64(10**15)
_DATE = (
    r"^(?P<y>\d{4})(?:-?(?P<m>\d\d)(?:-?(?P<d>\d\d)"
    r"(?:[T ](?P<H>\d\d)(?::?(?P<M>\d\d)(?::?(?P<S>\d\d))?)?)?)?)?"
)


def sketch(job: Job, item: tuple[int, Partition]) -> Done:
    """Publishes, for the partition:

    - `texts`: a `TEXT` record per document, cut by ranges of the text hash;
    - `bands`: a `BAND` record per distinct text and band, cut by ranges of the key;
    - `sample`: the partition's candidates for the sample on which recall is measured.
    """
    index, partition = item
    key = hash_json([job.key, "sketch", index, partition.name, partition.xxh3])
    return once(job.work, f"sketch/{index:06d}", key, lambda: _sketch(job, index, partition, key))


def _sketch(job: Job, index: int, partition: Partition, key: str) -> Done:
    docs = partition.read(["doc_id", "source", "date", "text", "text_hash"])
    if len(docs) >= 2**31 or index >= 2**31:
        raise WorkError(f"partition {partition.name}: more documents than a location can number")
    texts = _texts(job, index, docs)
    order = np.lexsort((texts["location"], texts["lo"], texts["hi"]))
    texts = texts[order]
    new = np.r_[True, (texts["hi"][1:] != texts["hi"][:-1]) | (texts["lo"][1:] != texts["lo"][:-1])][
        : len(texts)
    ]
    distinct = np.flatnonzero(new)
    counters = {"docs": len(docs)}
    sources = docs["source"].value_counts().to_pylist()
    counters.update({f"source/{entry['values']}/docs": entry["counts"] for entry in sources})
    files = {}
    if job.params.minhash:
        hashes = permutations(job.params.num_perm, job.params.seed).first(
            job.banding.bands * job.banding.rows
        )
        rows = order[distinct].astype(np.int64)
        signed, counts, draws = sign(one_array(docs["text"]), rows, Shingle(job.params.ngram), hashes)
        texts["shingles"] = counts[np.cumsum(new) - 1]
        some = np.flatnonzero(counts > 0)
        firsts = texts[distinct[some]]
        files["bands"] = _bands(job, index, signed[some], firsts)
        files["sample"] = write(
            job.work, f"sketch/{index:06d}.sample", draw(sample_records(draws[some], firsts))
        )
        counters["short"] = int((texts["shingles"] == 0).sum())
    ranges = in_range(texts["hi"], job.text_ranges)
    files["texts"] = write(job.work, f"sketch/{index:06d}.texts", texts, ranges)
    return Done(key=key, files=files, counters=counters)


def _texts(job: Job, index: int, docs: pa.Table) -> Records:
    texts = np.zeros(len(docs), TEXT)
    texts["hi"], texts["lo"] = words(one_array(docs["text_hash"]))
    texts["id_hi"], texts["id_lo"] = words(one_array(docs["doc_id"]))
    texts["location"] = (index << 32) + np.arange(len(docs), dtype=np.int64)
    names = one_array(docs["source"]).dictionary_encode()
    distinct, codes = names.dictionary.to_pylist(), names.indices.to_numpy()
    priorities = dict(job.priorities)
    texts["source"] = np.array([source_hash(name) for name in distinct], np.uint64)[codes]
    texts["priority"] = np.array([priorities.get(name, 0) for name in distinct], np.int64)[codes]
    texts["length"] = pc.binary_length(docs["text"]).to_numpy()
    texts["date"] = dates(docs["date"])
    return texts


def source_hash(name: str) -> int:
    """What records hold in place of a source's name."""
    return xxhash.xxh3_64_intdigest(name.encode())


def dates(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """ISO 8601 dates as numbers YYYYMMDDhhmmss; what is not given counts as 0, offsets from UTC are not
    applied. A missing or unreadable date comes last."""
    parts = pc.extract_regex(column, _DATE)
    digits = pc.binary_join_element_wise(*(pc.struct_field(parts, [name]) for name in "ymdHMS"), "")
    numbers = pc.cast(pc.ascii_rpad(digits, 14, "0"), pa.int64())
    result: npt.NDArray[np.int64] = pc.fill_null(numbers, int(NO_DATE)).to_numpy()
    return result


def in_range(value: npt.NDArray[np.uint64], ranges: int) -> npt.NDArray[np.int64]:
    """Which of `ranges` equal ranges of 64-bit numbers each value lies in; ascending with the value."""
    return (((value >> np.uint64(32)) * np.uint64(ranges)) >> np.uint64(32)).astype(np.int64)


def _bands(job: Job, index: int, signed: npt.NDArray[np.uint32], texts: Records) -> File:
    keys = kernel.band_keys(signed, job.banding.bands, job.banding.rows)
    bands = np.empty(keys.size, BAND)
    bands["key"] = keys.ravel()
    bands["text"] = np.repeat(texts["hi"], job.banding.bands)
    bands["location"] = np.repeat(texts["location"], job.banding.bands)
    bands = bands[np.argsort(bands["key"], kind="stable")]
    return write(job.work, f"sketch/{index:06d}.bands", bands, in_range(bands["key"], job.band_ranges))


def sample_records(draws: npt.NDArray[np.uint64], texts: Records) -> Records:
    """`SAMPLE` records of distinct texts."""
    records = np.empty(len(texts), SAMPLE)
    records["draw"] = draws
    for name in ("hi", "lo", "location"):
        records[name] = texts[name]
    return records


def draw(records: Records) -> Records:
    """The sample out of `SAMPLE` records: those with the least draws, each text once.

    The draw is a min-hash that has no part in the signature, so near-copies are drawn together with a
    probability of their similarity: a sample of single documents would hold hardly a pair. Drawing from draws
    of parts gives the draw of the whole.
    """
    records = records[np.lexsort((records["location"], records["lo"], records["hi"], records["draw"]))]
    same = (records["hi"][1:] == records["hi"][:-1]) & (records["lo"][1:] == records["lo"][:-1])
    records = records[np.r_[True, ~same][: len(records)]]
    starts = np.flatnonzero(np.r_[True, records["draw"][1:] != records["draw"][:-1]][: len(records)])
    place = np.arange(len(records)) - np.repeat(starts, np.diff(np.r_[starts, len(records)]))
    return records[place < SAMPLE_CROWD][:SAMPLE_SIZE]
