"""Signatures of all documents as Parquet that other tools can use: written by the stage, and read back as
`datasketch.MinHash`.

A table has a row per text: `doc_id` (fixed_size_binary[16]) and `signature` (fixed_size_list<uint32>[used], uint64
for the preset `datatrove`). The schema's metadata describe the numbers: `num_perm` values stored, the first of
`drawn` permutations by `seed`; `scheme` ("affine32" of datasketch, or "datatrove"); `shingle`, `ngram`; `rule`, the
version of the word rule and of its hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.shuffle import Done, File, once
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text import preset_shingles, unicode_tables, word_rule
from corpusmill.pipeline.text.buffers import one_array
from corpusmill.pipeline.text.shingling import Shingling, permutations
from corpusmill.schemas import tables
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.manifest import hash_json
from corpusmill.schemas.tables import ID

if TYPE_CHECKING:
    from datasketch import MinHash


class Stored(NamedTuple):
    """Signatures and the texts that they are of, row for row."""

    doc_ids: pa.Array  # fixed_size_binary[16]
    signatures: npt.NDArray[np.unsignedinteger]  # uint32 or uint64 [rows, num_perm]


def metadata(params: DedupParams, used: int) -> dict[str, str]:
    """How a table describes its signatures, in the metadata of its schema."""
    theirs = params.preset == "datatrove"
    datatrove = f"datatrove-0.10.1/unicode-{unicode_tables.VERSION}"
    return {
        "num_perm": str(used),
        "drawn": str(params.num_perm),
        "seed": str(params.seed),
        "scheme": "datatrove" if theirs else "affine32",
        "shingle": params.shingle,
        "ngram": str(params.ngram),
        "rule": datatrove if theirs else preset_shingles.RULES.get(params.preset, word_rule.RULE),
    }


def signatures_table(
    doc_ids: pa.Array | pa.ChunkedArray, signatures: npt.NDArray[np.unsignedinteger], params: DedupParams
) -> pa.Table:
    """The table of `signatures` [rows, used], as `Shingling(params, used)` gives them."""
    used = signatures.shape[1]
    if isinstance(doc_ids, pa.ChunkedArray):
        doc_ids = one_array(doc_ids)
    values = pa.array(np.ascontiguousarray(signatures).ravel())
    lists = pa.FixedSizeListArray.from_arrays(values, used)
    schema = tables.signatures(values.type, used, metadata(params, used))
    return pa.Table.from_arrays([doc_ids.cast(ID), lists], schema=schema)


def load_signatures(where: Folder | Path | str | pa.Table, params: DedupParams) -> Stored:
    """The signatures of a table, of a Parquet file or of all `*.parquet` in a folder, by file name.

    Raises `UserError` if they are not those that `params` ask for: numbers of another seed, shingle or word rule
    compare without complaint and mean nothing.
    """
    given = [where] if isinstance(where, pa.Table) else _tables(Folder(str(where)))
    for table in given:
        _check(table.schema, params)
    widths = {table.schema.field("signature").type.list_size for table in given}
    if len(widths) != 1:
        raise UserError(f"{where}: signatures of {sorted(widths)} values cannot be compared with each other")
    whole = pa.concat_tables([table.replace_schema_metadata(None) for table in given])
    lists = one_array(whole["signature"])
    return Stored(one_array(whole["doc_id"]), lists.flatten().to_numpy().reshape(len(whole), widths.pop()))


def _tables(folder: Folder) -> list[pa.Table]:
    if folder.name.endswith(".parquet"):
        return [read_table(folder)]
    names = sorted(entry.path for entry in folder.list() if entry.path.endswith(".parquet"))
    if not names:
        raise UserError(f"{folder}: no signatures (*.parquet) here; `store_signatures: true` writes them")
    return [read_table(folder / name) for name in names]


def _check(schema: pa.Schema, params: DedupParams) -> None:
    found_metadata: Mapping[bytes, bytes] = schema.metadata or {}
    if b"scheme" not in found_metadata or set(schema.names) != {"doc_id", "signature"}:
        raise UserError("no table of signatures: it has no doc_id, signature and metadata that describe them")
    for key, wanted in metadata(params, schema.field("signature").type.list_size).items():
        found = found_metadata.get(key.encode(), b"?").decode()
        if found != wanted:
            raise UserError(f"stored signatures have {key} = {found}, these parameters ask for {wanted}")


def to_datasketch(signature: npt.NDArray[np.unsignedinteger], params: DedupParams) -> MinHash:
    """A stored signature as `datasketch.MinHash`, with the permutations that made it.

    Two such compare with each other; with a `MinHash` made elsewhere if that has the same permutations:
    `MinHash(num_perm=params.num_perm, seed=params.seed, scheme="affine32")` if all of them are stored, else
    `MinHash(permutations=this.permutations, num_perm=len(this), scheme="affine32")` (datasketch draws other numbers
    for another `num_perm`). Raises `UserError` for the preset `datatrove`, whose values datasketch does not know.
    """
    if params.preset == "datatrove":
        raise UserError(
            "preset datatrove: its signatures are 61-bit values that datasketch.MinHash cannot hold"
        )
    from datasketch import MinHash

    hashes = permutations(params.num_perm, params.seed).first(len(signature))
    return MinHash(
        seed=params.seed, hashvalues=signature, permutations=(hashes.a, hashes.b), scheme="affine32"
    )


@dataclass(frozen=True)
class Signing:
    """A partition, and the stage's folder."""

    index: int
    partition: Partition
    stage: Folder


def signatures(job: Job, item: Signing) -> Done:
    """Publishes `signatures/<partition>.parquet` in the stage's folder: all `num_perm` values, not only those
    that the bands use."""
    key = hash_json([job.key, "signatures", item.partition.name, item.partition.xxh3])

    def step() -> Done:
        docs = item.partition.read(["doc_id", "text"])
        shingling = Shingling(job.params, job.params.num_perm)
        signed = shingling.sign(one_array(docs["text"]), np.arange(len(docs), dtype=np.int64))
        table = signatures_table(docs["doc_id"], signed.signatures, job.params)
        file = publish_table(item.stage, f"signatures/{item.partition.name}.parquet", table)
        return Done(key=key, files={"table": File(file=file)})

    return once(item.stage, f"scratch/signatures/{item.index:06d}", key, step)
