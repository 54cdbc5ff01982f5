"""A batch on its way to the device: cut into micro-batches, from pinned memory, copied while the device still computes the
step before. Nothing here waits for the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from corpusmill.train.model.attend import sequence_starts
from corpusmill.train.model.initialise import key

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig

Batch = Mapping[str, Tensor]  # as the loader makes it, on the host; a row for each sequence
Rows = dict[str, Tensor]  # a decoder's arguments, by name


class MicroBatch(NamedTuple):
    """On the device. `scored`: float64 [rows], tokens with a label; `source_id`: int64 [rows]; `answers`: of data that says what its
    labels are of; `numbers`: int64 [rows], of their sequences, on the host."""

    inputs: Rows
    scored: Tensor
    source_id: Tensor
    answers: Answers | None = None
    numbers: Tensor | None = None


class Answers(NamedTuple):
    """The documents of a micro-batch that have labels, in their order. `places`: int64, of all their labels in the flattened rows, in
    their order; `lengths`: int64 [n], labels of each; both on the device. `rows`, `kinds`: int64 [n], the row and the `Target` of
    each, on the host."""

    places: Tensor
    lengths: Tensor
    rows: Tensor
    kinds: Tensor


def answers_of(batch: Batch, sent: Sent) -> Answers:
    """Of some rows with `targets`."""
    places = (batch["labels"] >= 0).flatten().nonzero().squeeze(1)
    length = batch["labels"].shape[1]
    rows = places // length
    # A number for each document, rising with the places.
    document = rows * length + batch["documents"].flatten()[places].to(torch.int64)
    _, lengths = torch.unique_consecutive(document, return_counts=True)
    first = lengths.cumsum(0) - lengths
    kinds = batch["targets"].flatten()[places[first]].to(torch.int64)
    return Answers(sent.to(places), sent.to(lengths), rows[first], kinds)


def micro_batches(batch: Batch, config: TrainConfig, step: int, device: torch.device) -> list[MicroBatch]:
    """The micro-batches of a step, with the keys of its dropout and noise.

    On CUDA they are copied by a stream of their own. The host is ahead of the device by a step, so that a copy runs while the
    step before is computed; the computation waits for it on the device.
    """
    micro = config.data.micro_batch
    drops = dropout_keys(config.seed, step, batch["n"]) if config.random_rows else None
    with copying(device) as sent:
        rows = inputs(batch, device, drops, micro, sent)
        scored = sent.to((batch["labels"] >= 0).sum(1).to(torch.float64))
        sources = sent.to(batch["source_id"])
        answers: list[Answers | None] = [None] * len(rows)
        if "targets" in batch:
            names = ("labels", "documents", "targets")
            cut = zip(*(torch.split(batch[name], micro) for name in names), strict=True)
            answers = [answers_of(dict(zip(names, part, strict=True)), sent) for part in cut]
    numbers = torch.split(batch["n"], micro)
    parts = zip(rows, torch.split(scored, micro), torch.split(sources, micro), answers, numbers, strict=True)
    return [MicroBatch(*part) for part in parts]


def inputs(
    batch: Batch,
    device: torch.device,
    keys: Tensor | None = None,
    micro: int | None = None,
    sent: Sent | None = None,
) -> list[Rows]:
    """The decoder's arguments for each `micro` rows (None: all together). Rows of one document each need no mask, and get
    the faster kernel."""
    sent = sent or Sent(device)
    micro = micro or len(batch["tokens"])
    documents = torch.split(batch["documents"], micro)
    several = [bool(part.any()) for part in documents]
    names = ("tokens", "labels", *(("documents", "positions") if any(several) else ()))
    names += tuple(name for name in ("ancestors", "places") if name in batch)
    whole = {name: sent.to(batch[name]) for name in names}
    if keys is not None:
        whole["keys"] = sent.to(keys)
    cut = {name: torch.split(value, micro) for name, value in whole.items()}
    rows = []
    for number, many in enumerate(several):
        row = {
            name: parts[number]
            for name, parts in cut.items()
            if many or name not in ("documents", "positions")
        }
        if many and device.type == "cuda":
            row["cu_seqlens"] = sent.to(sequence_starts(documents[number]))
        rows.append(row)
    return rows


def dropout_keys(seed: int, step: int, numbers: Tensor) -> Tensor:
    """int64 [rows]: a key for each row of a step, by its sequence number. Rows that a ramp cuts out of one sequence differ
    by their place in it."""
    rows: Counter[int] = Counter()
    found = []
    for number in numbers.tolist():
        found.append(key("dropout", seed, step, number, rows[number]))
        rows[number] += 1
    return torch.tensor(found)


class Sent:
    """Tensors that were sent to a device."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.tensors = device, list[Tensor]()

    def to(self, tensor: Tensor) -> Tensor:
        """The tensor on the device; the host does not wait for the copy, for which pinned memory is needed."""
        if self.device.type != "cuda":
            return tensor.to(self.device)
        if not tensor.is_cuda:
            tensor = tensor.contiguous().pin_memory().to(self.device, non_blocking=True)
        self.tensors.append(tensor)
        return tensor


@contextmanager
def copying(device: torch.device) -> Iterator[Sent]:
    """What is sent within is copied beside the computation, which waits for it from the end of this context on."""
    sent = Sent(device)
    if device.type != "cuda":
        yield sent
        return
    stream, computing = copies(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(stream):
        yield sent
    computing.wait_stream(stream)
    for tensor in sent.tensors:
        tensor.record_stream(computing)  # its memory is the copying stream's, and is used by the other one


@lru_cache(maxsize=8)
def copies(device: torch.device) -> torch.cuda.Stream:
    """The stream of all copies between the host and a CUDA device."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
