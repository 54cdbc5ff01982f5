"""`StreamingTokens`: the batches of a plan as torch tensors, ahead of their use, resumed by one number."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future as Promise
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch

from schemas.config import validate
from schemas.data import DataConfig
from schemas.errors import UserError, WorkError
from train.data.fetch import BlockData, Blocks, Key
from train.data.future import Future
from train.data.opening import open_tokens
from train.data.order import Address, order
from train.data.pack import Marks, Piece, best_fit, packed, windows
from train.data.plan import Plan, difference, past
from train.data.planning import make_plan
from train.data.shards import Shards

MARKS = ("documents", "positions", "cu_seqlens", "max_seqlen")
TOGETHER = 2**19  # tokens of steps that are built in one go
GROUP = 4096  # sequences whose addresses are computed, and whose blocks are asked for, in one go
PACKINGS = 256  # blocks whose best-fit packing is remembered


class Batch(Mapping[str, torch.Tensor]):
    """The tensors of a batch by name. Those of `MARKS` are made when the first of them is asked for."""

    def __init__(self, columns: dict[str, torch.Tensor], marks: Callable[[], Marks]) -> None:
        self._columns, self._marks = columns, marks

    def __getitem__(self, name: str) -> torch.Tensor:
        if name in MARKS and name not in self._columns:
            found = self._marks()
            self._columns |= {mark: torch.from_numpy(getattr(found, mark)) for mark in MARKS[:-1]}
            self._columns["max_seqlen"] = torch.tensor(found.max_seqlen, dtype=torch.int32)
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._columns, *MARKS]))

    def __len__(self) -> int:
        return len(list(iter(self)))


class StreamingTokens:
    """Endless batches of one data-parallel rank; ranks' batches, put together in order, are the global batch.

        stream = StreamingTokens("runs/quickstart/shards", sequence_length=256, global_batch=64, seed=1)
        for batch in stream:
            loss = model(batch["tokens"], batch["labels"])

    Every key of the `data` section of a training config is a keyword here (`schemas.data.DataConfig`). A batch holds
    this rank's rows: `tokens`, `labels`, `documents`, `positions` (integers [rows, length]), `cu_seqlens` (int32
    [documents + 1]) and `max_seqlen` (int32 []) for variable-length attention, `source_id` (int64 [rows], a place in
    `self.sources`) and `n` (int64 [rows], the global sequence numbers). `train.data.pack` says where documents begin.

    State is `{"v", "n", "plan"}` and what the plan is made of, the same on every rank: any number of ranks takes it up.
    Knows nothing of torch.distributed: ranks that see the same data pass the same `dp_rank`.
    """

    def __init__(
        self,
        shards: str | Shards,
        *,
        plan: Plan | None = None,
        seed: int = 0,
        dp_rank: int = 0,
        dp_world: int = 1,
        say: Callable[[str], None] = partial(print, file=sys.stderr),
        **data: Any,
    ) -> None:
        url = shards if isinstance(shards, str) else shards.folder.url
        self.config = validate(DataConfig, {"micro_batch": 1, **data, "shards": url}, "StreamingTokens")
        if isinstance(shards, str):
            opened = open_tokens(url, self.config.token_cache, self.config.tokenizer, say)
        else:
            opened = shards
        self.plan = plan or make_plan(self.config, opened, seed)
        if not 0 <= dp_rank < dp_world:
            raise UserError(f"dp_rank {dp_rank}: must be 0 to {dp_world - 1} (dp_world is {dp_world})")
        for stretch in self.plan.stretches:
            if stretch.cells % dp_world:
                parts = self.plan.sequence_length // stretch.length
                raise UserError(
                    f"data.global_batch: {stretch.cells * parts} sequences of {stretch.length} cannot be dealt to"
                    f" {dp_world} processes: set it to {-(-stretch.cells // dp_world) * dp_world * parts}"
                )
        self.dp_rank, self.dp_world = dp_rank, dp_world
        self.sources = [source.name for source in self.plan.sources]
        self.n, self.step = 0, 0
        self.say = say
        read = [opened.train[name] for name in self.sources]
        self._eos = opened.set.eos_id
        self._blocks = Blocks(read, self.config.fetch, Future(self.plan, dp_rank, dp_world).next_use, say)
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: deque[tuple[int, Promise[list[Batch]]]] = deque()
        self._built: deque[Batch] = deque()
        self._coming, self._begun = 0, 0  # steps that are being built; the step that this stream began after
        self._groups: OrderedDict[int, tuple[range, Address]] = OrderedDict()
        self._packings: OrderedDict[tuple[Key, int], list[list[Piece]]] = OrderedDict()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        # The first batch comes alone, and soon; then more and more of them together.
        while len(self._built) + self._coming <= self.config.prefetch:
            first = self.step + 1 + len(self._built) + self._coming
            count = self._together(first)
            self._ahead.append((count, self._builder.submit(self.build, first, count)))
            self._coming += count
        while not self._built:
            count, promise = self._ahead[0]
            self._built.extend(promise.result())
            self._ahead.popleft()
            self._coming -= count
        batch = self._built.popleft()
        self.step += 1
        self.n = self.plan.end_of(self.step)
        return batch

    def _together(self, first: int) -> int:
        """How many steps to build in one go: of one length, no more than are wanted ahead."""
        stretch = self.plan.segment_of(first).stretch
        tokens = stretch.cells // self.dp_world * self.plan.sequence_length
        ends = [s.first_step for s in self.plan.stretches if s.first_step > first]
        return max(
            min(
                TOGETHER // tokens,
                (self.config.prefetch + 1) // 2,
                first - self._begun,
                *(end - first for end in ends),
            ),
            1,
        )

    def build(self, first: int, count: int = 1) -> list[Batch]:
        """This rank's part of the batches of `count` steps from `first` on (counted from 1), which are of one length.

        Pure but for what is remembered.
        """
        plan, length = self.plan, self.plan.segment_of(first).stretch.length
        parts = plan.sequence_length // length
        steps = range(first, first + count)
        numbers = np.concatenate([plan.numbers(step, self.dp_rank, self.dp_world) for step in steps])
        found = [self._addresses(step) for step in steps]
        at = (
            Address(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
            if count > 1
            else found[0]
        )
        keys = list(zip(at.source.tolist(), at.block.tolist(), strict=True))
        blocks = self._blocks.get(keys, int(numbers[0]))
        cells = zip(keys, at.sequence.tolist(), strict=True)
        if plan.packing == "windows":
            rows = windows(
                ((blocks[key], cell * parts + part) for key, cell in cells for part in range(parts)),
                length, plan.cross_documents,
            )  # fmt: skip
        else:
            rows = packed(
                (
                    (blocks[key], row)
                    for key, cell in cells
                    for row in self._packing(key, blocks[key], length)[cell * parts : (cell + 1) * parts]
                ),
                length, self._eos, plan.cross_documents,
            )  # fmt: skip
        columns = {"tokens": rows.tokens, "labels": rows.labels}
        columns |= {"source_id": at.source.repeat(parts), "n": numbers.repeat(parts)}
        tensors = {name: torch.from_numpy(column) for name, column in columns.items()}
        size = len(rows.tokens) // count
        return [
            Batch(
                {name: tensor[low : low + size] for name, tensor in tensors.items()},
                partial(rows.marks, low, low + size),
            )
            for low in range(0, len(rows.tokens), size)
        ]

    def _addresses(self, step: int) -> Address:
        """Of this rank's part of the batch of a step; computed for a group of steps, the next group's blocks asked for."""
        group = next((group for group in self._groups.values() if step in group[0]), None)
        steps, found = group or self._group(step)
        if steps.stop not in self._groups:
            self._group(steps.stop)
        share = len(found.source) // len(steps)
        part = slice((step - steps.start) * share, (step - steps.start + 1) * share)
        return Address(*(column[part] for column in found))

    def _group(self, first: int) -> tuple[range, Address]:
        """Addresses from a step on, to the end of its segment at most; their blocks begin to come."""
        stretch = self.plan.segment_of(first).stretch
        count = max(GROUP * self.dp_world // stretch.cells, 1)
        later = [s.first_step for s in self.plan.stretches if s.first_step > first]
        steps = range(first, min([first + count, *later]))
        numbers = np.concatenate([self.plan.numbers(step, self.dp_rank, self.dp_world) for step in steps])
        found = order(self.plan, numbers)
        self._groups[first] = steps, found
        while len(self._groups) > 3:
            self._groups.popitem(last=False)
        self._blocks.read_ahead(
            dict.fromkeys(zip(found.source.tolist(), found.block.tolist(), strict=True)), int(numbers[0])
        )
        return steps, found

    def _packing(self, key: Key, block: BlockData, length: int) -> list[list[Piece]]:
        known = self._packings.get((key, length))
        if known is None:
            rows = (
                (len(block.tokens) - 1) // self.plan.sequence_length * (self.plan.sequence_length // length)
            )
            known = self._packings[key, length] = best_fit(block.starts, len(block.tokens), length, rows)
            if len(self._packings) > PACKINGS:
                self._packings.popitem(last=False)
        return known

    def state_dict(self) -> dict[str, Any]:
        """JSON. `n` counts the sequences of whole global batches that were handed out, and of those passed over."""
        return {"v": 2, "n": self.n, "plan": self.plan.sha256, "made_of": self.plan.as_json()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at `state["n"]`.

        The plan may be another in what is still to come (stages, ramps, skips). Raises `UserError` naming the
        difference if what is behind, or the data, are others.
        """
        if state.get("v") != 2:
            raise WorkError(
                f"loader state: version {state.get('v')!r} is not known to this program (it knows 2)"
            )
        n = int(state["n"])
        step = self.plan.step_at(n) - 1
        if state["plan"] != self.plan.sha256:
            lines = difference(past(state.get("made_of") or _EMPTY, step), past(self.plan.as_json(), step))
            if lines or not state.get("made_of"):
                raise UserError(
                    "the data plan is not the one that the state was made with: "
                    + ("; ".join(lines) if lines else f"{state['plan'][:12]} -> {self.plan.sha256[:12]}")
                    + "; restore it, or start a new run in another output"
                )
            self.say(
                f"data: going on after step {step} on a changed plan ({state['plan'][:12]} ->"
                f" {self.plan.sha256[:12]}); the steps before are the same in both"
            )
        if n != self.plan.end_of(step):
            raise WorkError(
                f"loader state: n {n} is not at the end of a batch of the plan; the nearest is {self.plan.end_of(step)}"
            )
        for _, promise in self._ahead:
            promise.cancel()
        self._ahead.clear()
        self._built.clear()
        self._coming, self._begun = 0, step
        self.n, self.step = n, step

    @property
    def fetched(self) -> dict[str, int]:
        """Requests, bytes, retries, second requests for slow blocks, and damaged blocks replaced, so far."""
        blocks = self._blocks
        return {
            "requests": blocks.requests, "bytes": blocks.fetched_bytes, "retries": blocks.retries,
            "hedged": blocks.hedged, "replaced": len(blocks.replaced),
        }  # fmt: skip

    def close(self) -> None:
        self._blocks.close()
        self._builder.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> StreamingTokens:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_EMPTY: dict[str, Any] = {"stages": {}, "skip": {}, "sources": {}}
