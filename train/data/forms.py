"""Batches in the forms that other loops expect: labels as models of Hugging Face take them, and one sequence at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from corpusmill.common.errors import WorkError
from corpusmill.train.data.pack import IGNORED

if TYPE_CHECKING:
    from corpusmill.train.data.stream import StreamingTokens

OF_ROWS = ("tokens", "labels", "documents", "positions", "source_id", "n")  # have a row for each sequence


def unshifted(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A batch for a model that shifts labels itself: `input_ids`, `labels`, `position_ids`, int64 [rows, length + 1].

    Such a model compares what it predicts at a position with the label of the next one, so `length` predictions take
    `length + 1` positions: those of `tokens`, and the last label. The first label, which no position predicts, is `IGNORED`.
    Positions begin at 0 in each document, by which models of transformers keep documents apart.
    """
    tokens, labels, positions = batch["tokens"], batch["labels"], batch["positions"]
    return {
        "input_ids": torch.cat([tokens, labels[:, -1:]], 1),
        "labels": torch.cat([torch.full_like(labels[:, :1], IGNORED), labels], 1),
        "position_ids": torch.cat([positions, positions[:, -1:] + 1], 1).long(),
    }


def by_rows(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a batch that can be cut and joined by rows."""
    return {name: batch[name] for name in OF_ROWS if name in batch} if "tokens" in batch else dict(batch)


class SingleSequences(IterableDataset[dict[str, Tensor]]):
    """The sequences of a stream's batches one by one, in their order: the tensors of a batch without `cu_seqlens` and
    `max_seqlen`, and without the dimension of rows. Made by `StreamingTokens.sequences`.

    Its state is the stream's, with `rows`, how many of this rank's sequences of the next batch were returned, and `ranks`.
    """

    def __init__(self, stream: StreamingTokens) -> None:
        self.stream = stream
        self._batch: dict[str, Tensor] | None = None  # in hand
        self._row = 0  # of the batch in hand, or else of the next one
        self._before = 0  # the stream's step before the batch in hand

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        iter(self.stream)
        return self

    def __next__(self) -> dict[str, Tensor]:
        if self._batch is None:
            self._before = self.stream.step
            self._batch = by_rows(next(self.stream))
        row = {name: tensor[self._row] for name, tensor in self._batch.items()}
        self._row += 1
        if self._row == len(self._batch["labels"]):
            self._batch, self._row = None, 0
        return row

    def set_epoch(self, epoch: int) -> None:
        self.stream.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        step = self.stream.step if self._batch is None else self._before
        n = self.stream.plan.end_of(step)
        return {**self.stream.state_dict(), "n": n, "rows": self._row, "ranks": self.stream.dp_world}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at `state`, of this or of the stream. Raises as `StreamingTokens.load_state_dict`, and `WorkError` for a
        state within a batch on another number of ranks."""
        rows, ranks = state.get("rows", 0), self.stream.dp_world
        if rows and state["ranks"] != ranks:
            raise WorkError(
                f"loader state: within a batch, after {rows} sequences of each of {state['ranks']} ranks: it cannot be"
                f" continued on {ranks}; a state at the end of a global batch can"
            )
        self.stream.load_state_dict({**state, "rows": 0})
        self._batch, self._row = None, rows
