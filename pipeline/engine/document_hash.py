"""Which split a document is in, and hashes of ids: shared by `split`, `tokenizer` and `shard`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpusmill.common.ids import ID_BYTES
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table
from corpusmill.schemas.tables import ID

VALIDATION = "validation.parquet"
SUMMARY = "split.json"
SIMILARITY = "similarity.json"


def groups_of(docs: pa.Table) -> pa.ChunkedArray:
    """The unit that is never parted, per row: the duplicate cluster, or the document itself."""
    return pc.coalesce(docs["cluster_id"], docs["doc_id"])


def split_of(docs: pa.Table, validation_groups: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """True for the rows of `docs` (columns `doc_id`, `cluster_id`) that are validation."""
    if len(docs) == 0:
        return np.zeros(0, dtype=bool)
    groups = (
        validation_groups.combine_chunks()
        if isinstance(validation_groups, pa.ChunkedArray)
        else validation_groups
    )
    mask: npt.NDArray[np.bool_] = pc.is_in(groups_of(docs), value_set=groups).to_numpy()
    return mask


def read_validation_groups(split: Folder) -> pa.Array:
    """The sorted groups that the split stage published in its folder."""
    return read_table(split / VALIDATION)["group"].combine_chunks()


def purpose_seed(seed: int, purpose: str) -> int:
    """A 64-bit seed of its own for each use of the recipe's seed: orders must not follow each other, or the
    shards would begin with what the tokenizer saw."""
    return xxhash.xxh3_64_intdigest(f"{seed}:{purpose}".encode())


def hash_ids(ids: pa.Array | pa.ChunkedArray, seed: int) -> npt.NDArray[np.uint64]:
    """xxh3_64(id, seed) of 16-byte ids without nulls, a batch at a time (XXH3's 9 to 16 byte case, as
    specified in xxHash's doc/xxhash_spec.md)."""
    if isinstance(ids, pa.ChunkedArray):
        ids = pa.concat_arrays(ids.chunks) if ids.num_chunks else pa.array([], ID)
    if len(ids) == 0:
        return np.zeros(0, dtype=np.uint64)
    words = np.frombuffer(
        ids.buffers()[1], dtype="<u8", offset=ids.offset * ID_BYTES, count=2 * len(ids)
    ).reshape(-1, 2)
    mask = 2**64 - 1
    flip_low = np.uint64(((_SECRET[3] ^ _SECRET[4]) + seed) & mask)
    flip_high = np.uint64(((_SECRET[5] ^ _SECRET[6]) - seed) & mask)
    low, high = (words[:, 0] ^ flip_low).astype(np.uint64), (words[:, 1] ^ flip_high).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = np.uint64(ID_BYTES) + low.byteswap() + high + _folded_product(low, high)
        mixed = np.asarray(mixed ^ (mixed >> np.uint64(37)), np.uint64) * np.uint64(0x165667919E3779F9)
        result: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(32))
    return result


# The first 56 bytes of XXH3's default secret, as little-endian words.
_SECRET = tuple(
    int.from_bytes(bytes.fromhex(word), "little")
    for word in (
        "b8fe6c3923a44bbe", "7c01812cf721ad1c", "ded46de9839097db", "7240a4a4b7b3671f",
        "cb79e64eccc0e578", "825ad07dccff7221", "b8084674f743248e",
    )
)  # fmt: skip


def _folded_product(a: npt.NDArray[np.uint64], b: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """High and low half of the 128-bit product, xored."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    first, middle, cross, last = a_low * b_low, a_high * b_low, a_low * b_high, a_high * b_high
    carry = (first >> half) + (middle & low) + cross
    upper = (middle >> half) + (carry >> half) + last
    lower = (carry << half) | (first & low)
    result: npt.NDArray[np.uint64] = np.bitwise_xor(upper, lower)
    return result
