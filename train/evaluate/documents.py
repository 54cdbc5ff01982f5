"""The losses of each document of a validation split, kept in the run's folder: two models are compared on the same documents, and
the documents are the units of the error of bits per byte."""

from __future__ import annotations

import io
import math
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from corpusmill.common.errors import UserError
from corpusmill.schemas.evaluation import DOCUMENT_LOSSES, DOCUMENTS
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.pack import unscored
from corpusmill.train.evaluate.baselines import STRICT, all_blocks
from corpusmill.train.evaluate.batches import block_batches
from corpusmill.train.model.losses import IGNORED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.batch import Batch
    from corpusmill.train.data.shards import Source

AT_ONCE = 64  # batches whose rows exist at once


class TokenLosses(Protocol):
    """A `Scorer`, or several that predict together."""

    @property
    def config(self) -> TrainConfig: ...
    def losses(self, batches: Sequence[Batch]) -> Iterator[Tensor]: ...


def document_losses(
    scorer: TokenLosses, source: Source, rows: int = 16, stride: int | None = None
) -> pa.Table:
    """`DOCUMENT_LOSSES` of a split, every token scored once (but for `unscored` ones) in rows of training's length, which overlap with a `stride`, in the order of
    the documents' first tokens. A document that several blocks hold is one row. Raises `WorkError` for damaged data."""
    length, eos = scorer.config.data.sequence_length, source.index.eos_id
    places: dict[str, int] = {}
    of: list[npt.NDArray[np.int64]] = []  # the document of each segment
    parts: list[npt.NDArray[np.float64]] = []  # nats, tokens and characters of each segment, [3, segments]
    with closing(Blocks([source], STRICT)) as members:
        for number, block in enumerate(all_blocks(source)):
            if not len(block.tokens):
                continue
            batches, found = block_batches(block, length, eos, rows, stride), []
            while part := list(islice(batches, AT_ONCE)):
                labels = [batch["labels"] != IGNORED for batch in part]
                for losses, there in zip(scorer.losses(part), labels, strict=True):
                    found.append(losses.abs().double()[there])
            scored = ~unscored(block)
            each = np.zeros(len(block.tokens))
            each[scored] = torch.cat(found).numpy()
            nats, sizes = (
                np.add.reduceat(values, block.starts) for values in (each, scored.astype(np.int64))
            )
            about = members.documents((0, number))
            parts.append(np.stack([nats, sizes, np.subtract(about.char_ends, about.char_starts)]))
            of.append(np.array([places.setdefault(name, len(places)) for name in about.doc_ids]))
    document = np.concatenate(of) if of else np.zeros(0, dtype=np.int64)
    columns = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0))
    nats, tokens, characters = (np.bincount(document, row, minlength=len(places)) for row in columns)
    size = characters * (source.index.text_bytes / max(float(characters.sum()), 1.0))
    ids = pa.array([bytes.fromhex(name) for name in places], pa.binary(16))
    return pa.table([ids, tokens.astype(np.int64), nats, size], schema=DOCUMENT_LOSSES)


def paired_bits(
    scorers: Sequence[TokenLosses], source: Source
) -> tuple[list[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    """(bits of each document under each model, bytes of each document) of a validation split: float64 [documents] each."""
    rows = scorers[0].config.data.micro_batch
    tables = [document_losses(scorer, source, rows) for scorer in scorers]
    return [table["nats"].to_numpy() / math.log(2) for table in tables], tables[0]["bytes"].to_numpy()


def keep(run: Folder, source: str, documents: pa.Table) -> None:
    """Write the losses of a split's documents into the run's folder."""
    buffer = io.BytesIO()
    parquet.write_table(documents, buffer, compression="zstd")
    (run / DOCUMENTS / f"{source}.parquet").write(buffer.getvalue())


def kept(run: Folder) -> dict[str, pa.Table]:
    """What a run's folder has of its documents' losses, by source. Raises `UserError` for a file that holds something else."""
    found = {}
    for entry in sorted((run / DOCUMENTS).list()):
        if entry.path.endswith(".parquet"):
            file = run / DOCUMENTS / entry.path
            try:
                found[entry.path.removesuffix(".parquet")] = parquet.read_table(
                    io.BytesIO(file.read()), schema=DOCUMENT_LOSSES
                )
            except pa.ArrowException as error:
                raise UserError(
                    f"{file}: not losses of documents ({error}); evaluate the run again"
                ) from None
    return found
