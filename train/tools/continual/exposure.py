"""`corpusmill exposure`: one accounting over all phases behind a model: tokens and epochs of each source, and how often each document
was trained on, ever."""

from __future__ import annotations

import io
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from corpusmill.common.errors import UserError
from corpusmill.schemas.phases import DOCUMENT_EXPOSURE, Exposure, PhaseExposure, SourceExposure
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.pack import unlabelled
from corpusmill.train.data.repeats import Repeats, repeated, repeats
from corpusmill.train.optim.make import rate_at
from corpusmill.train.tools.continual.phases import Part, phases

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig

Ints = npt.NDArray[np.int64]


class Counted(NamedTuple):
    """A phase, and of each source of its plan how often each sequence was drawn."""

    part: Part
    sequences: list[Repeats]


def count(config: TrainConfig, run: Folder) -> list[Counted]:
    """The phases behind the newest checkpoint of a run, counted. Raises `UserError` as `phases` does."""
    return [Counted(part, repeats(part.plan, part.step, part.without)) for part in phases(config, run)]


def exposure(counted: list[Counted]) -> Exposure:
    """Tokens and epochs of each source, in each phase and in all. Data is the same source in several phases if its index is the same,
    by whatever name it was read."""
    rows: dict[str, SourceExposure] = {}
    for number, (part, found) in enumerate(counted):
        length = part.plan.sequence_length
        for source, one in zip(part.plan.sources, found, strict=True):
            row = rows.setdefault(
                source.index_xxh3,
                SourceExposure(names=[], tokens_available=source.tokens, tokens=[0] * len(counted), epochs=[0.0] * len(counted)),
            )  # fmt: skip
            if source.name not in row.names:
                row.names.append(source.name)
            row.tokens[number] += one.total * length
            row.epochs[number] += one.total / max(source.sequences.total, 1)
    return Exposure(
        phases=[
            PhaseExposure(
                name=part.config.name, run=part.run.url, step=part.step, plan=part.plan.sha256,
                tokens=sum(one.total for one in found) * part.plan.sequence_length,
                lr_sum=sum(rate_at(part.config, step) for step in range(1, part.step + 1) if step not in part.without),
            )
            for part, found in counted
        ],
        sources=[row for row in rows.values() if any(row.tokens)],
    )  # fmt: skip


def documents(counted: list[Counted]) -> pa.Table:
    """`DOCUMENT_EXPOSURE`: every document of which a token was a label in any phase, in the order of the phases and their data.

    Reads each block that a phase has drawn from. Raises `WorkError` if the store fails.
    """
    parts = [_segments(number, one) for number, one in enumerate(counted)]
    columns = pa.concat_tables(parts).combine_chunks()
    encoded = columns["doc_id"].combine_chunks().dictionary_encode()
    of, count = encoded.indices.to_numpy(), len(encoded.dictionary)
    phase, size, drawn = (columns[name].to_numpy() for name in ("phase", "tokens", "drawn"))
    by_phase = np.zeros((count, len(counted)), dtype=np.int64)
    np.add.at(by_phase, (of, phase), drawn)
    sizes = np.zeros_like(by_phase)
    np.add.at(sizes, (of, phase), size)
    tokens, total = sizes.max(1, initial=0), by_phase.sum(1)
    offsets = np.arange(count + 1, dtype=np.int32) * len(counted)
    table = pa.table(
        [
            encoded.dictionary,
            columns["source"].take(pa.array(np.unique(of, return_index=True)[1])),
            tokens,
            total,
            total / np.maximum(tokens, 1),
            pa.ListArray.from_arrays(offsets, by_phase.ravel()),
        ],
        schema=DOCUMENT_EXPOSURE,
    )
    return table.filter(pa.array(total > 0))


def _segments(number: int, counted: Counted) -> pa.Table:
    """doc_id, source, phase, tokens that may be labels and labels drawn, of each document in each block that was drawn from."""
    part, found = counted
    sources = [part.shards.train[source.name] for source in part.plan.sources]
    # A damaged block has the substitute that the run read.
    fetch = part.config.data.fetch.model_copy(update={"bad_blocks": 2**31})
    ids, names, sizes, drawn = list[bytes](), list[pa.Array](), list[Ints](), list[Ints]()
    with closing(Blocks(sources, fetch)) as blocks:
        for key, data, labels in repeated(part.plan, blocks, found):
            about = blocks.documents(key).doc_ids
            ids.append(bytes.fromhex("".join(about)))
            names.append(pa.repeat(sources[key[0]].name, len(about)))
            sizes.append(np.add.reduceat((~unlabelled(data)).astype(np.int64), data.starts))
            drawn.append(np.add.reduceat(labels, data.starts))
    count = sum(map(len, sizes))
    return pa.table(
        {
            "doc_id": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(16), count, [None, pa.py_buffer(b"".join(ids))]
            ),
            "source": pa.chunked_array(names, pa.string()),
            "phase": np.full(count, number),
            "tokens": np.concatenate([*sizes, np.zeros(0, np.int64)]),
            "drawn": np.concatenate([*drawn, np.zeros(0, np.int64)]),
        }
    )


def write_documents(table: pa.Table, file: Folder) -> None:
    """Write what `documents` returns as Parquet."""
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    file.write(buffer.getvalue())


def of_document(table: pa.Table, doc: str) -> dict[str, Any]:
    """The row of one document, by its id in hexadecimal digits. Raises `UserError` for something else, or if no batch has had it."""
    try:
        found = table.filter(pc.equal(table["doc_id"], pa.scalar(bytes.fromhex(doc), pa.binary(16))))
    except (ValueError, pa.ArrowException):
        raise UserError(f"--doc {doc}: must be a document's id, 32 hexadecimal digits") from None
    if not found:
        raise UserError(f"--doc {doc}: no batch of any phase has had a token of it")
    return {**found.to_pylist()[0], "doc_id": doc}
