"""`StreamingTokens`: the batches of a plan as torch tensors, built ahead of their use, resumed by one number."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future as Promise
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.schemas.data import DataConfig
from corpusmill.train.data.build import Batch, Builder, by_rows, unshifted
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.opening import completed
from corpusmill.train.data.order import Future
from corpusmill.train.data.plan import Plan, difference, past
from corpusmill.train.data.planning import caps_reached, make_plan
from corpusmill.train.data.rewriting import Vocabulary, rewriting
from corpusmill.train.data.shards import Shards, open_conversations, open_data, open_tokens

MOST_WORKERS = 1024  # of a DataLoader


class StreamingTokens(IterableDataset[Mapping[str, Tensor]]):
    """Endless batches of one data-parallel rank; the concatenation of the ranks' batches is the global batch.

        stream = StreamingTokens("runs/quickstart/shards", sequence_length=256, global_batch=64, seed=1)
        for batch in stream:
            loss = model(batch["tokens"], batch["labels"])

    Labels are shifted already: `labels[:, i]` is to be predicted at `tokens[:, i]`. With `shift_labels=False` a batch is what
    models that shift them themselves expect, as those of Hugging Face do: `input_ids`, `labels` and `position_ids`, int64
    [rows, length + 1], for the same predictions (`corpusmill.train.data.build.unshifted`).

    Every key of the `data` section of a training config is a keyword here (`corpusmill.schemas.data.DataConfig`). A batch has
    this rank's rows: `tokens`, `labels`, `documents`, `positions` (integers [rows, length]), `cu_seqlens` (int32
    [documents + 1]) and `max_seqlen` (int32 []) for variable-length attention, `source_id` (int64 [rows], an index of
    `self.sources`) and `n` (int64 [rows], the global sequence numbers). Where documents begin: `corpusmill.train.data.pack`.
    `tokens` and `labels` share memory: clone one before writing into it.

    It is a dataset for `torch.utils.data.DataLoader(stream, batch_size=None)`, and `sequences()` is one for loops that make
    batches themselves. docs/loader.md has the usual loops.

    State is `{"v", "n", "plan"}` and the description of the plan, the same on every rank: any number of ranks resumes from
    it. With `max_epochs` it ends before a batch in which a source would be read more often. torch.distributed is not used:
    ranks that read the same data pass the same `dp_rank`.
    """

    def __init__(
        self,
        shards: str | Shards,
        *,
        plan: Plan | None = None,
        seed: int = 0,
        dp_rank: int = 0,
        dp_world: int = 1,
        shift_labels: bool = True,
        log: Callable[[str], None] = partial(print, file=sys.stderr),
        **data: Any,
    ) -> None:
        url = shards if isinstance(shards, str) else shards.folder.url
        self.config = validate(DataConfig, {"micro_batch": 1, **data, "shards": url}, "StreamingTokens")
        if isinstance(shards, str) and self.config.conversations is not None:
            if self.config.token_cache is None:
                raise UserError(f"data.token_cache: {url} holds conversations; name a folder for their rows")
            opened = open_conversations(self.config, self.config.token_cache, log=log)
        elif isinstance(shards, str):
            opened = open_data(
                self.config, open_tokens(url, self.config.token_cache, self.config.tokenizer, log)
            )
            opened = completed(self.config, opened, log)
        else:
            opened = shards
        self.plan = plan or make_plan(self.config, opened, seed, steps=1)
        # A caller's plan has its own steps: the trainer refuses one that goes beyond the caps before it begins.
        self.last = None if plan else caps_reached(self.plan, self.config)
        if not 0 <= dp_rank < dp_world:
            raise UserError(f"dp_rank {dp_rank}: must be 0 to {dp_world - 1} (dp_world is {dp_world})")
        for stage in self.plan.stages:
            if stage.sequences % dp_world:
                parts = self.plan.sequence_length // stage.length
                raise UserError(
                    f"data.global_batch: {stage.sequences * parts} sequences of {stage.length} cannot be divided among"
                    f" {dp_world} processes: set it to {-(-stage.sequences // dp_world) * dp_world * parts}"
                )
        self.dp_rank, self.dp_world = dp_rank, dp_world
        self.shift_labels = shift_labels
        self.sources = [source.name for source in self.plan.sources]
        self.step = (
            0  # the last one whose batch was returned; in a DataLoader's worker, the one before its next
        )
        self.log = log
        self._opened = opened
        rewrites = self.config.masking or self.config.infill
        self.rewrite = rewriting(self.config, Vocabulary.of(opened), self.plan.seed) if rewrites else None
        self.all_labels = opened.all_labels and self.rewrite is None  # every token is one
        self._by_rows = False  # a loop cuts and joins batches by rows
        self._stride = 1  # steps from a batch to the next one
        # Whether a worker of a DataLoader has begun to read, by its number; in memory that forked processes share.
        self._begun_in = RawArray("b", MOST_WORKERS)
        self._start()

    def _start(self) -> None:
        """With no batch built, and with threads of this process."""
        read = [self._opened.train[name] for name in self.sources]
        next_use = Future(self.plan, self.dp_rank, self.dp_world).next_use
        self._blocks = Blocks(read, self.config.fetch, next_use, self.log)
        eos, rewrite = self._opened.set.eos_id, self.rewrite
        self._builder = Builder(self.plan, self._blocks, eos, self.dp_rank, self.dp_world, rewrite)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: deque[tuple[int, Promise[list[Batch]]]] = deque()
        self._built: deque[Batch] = deque()
        self._coming = 0  # steps that are being built
        self._begun = self.step  # the step that this stream began after

    def __iter__(self) -> Iterator[Mapping[str, Tensor]]:
        worker = get_worker_info()
        if worker is not None:
            self._become_worker(worker.id, worker.num_workers)
        return self

    def _become_worker(self, number: int, count: int) -> None:
        """Read the part of one process of a DataLoader, which takes a batch from each of them in turn."""
        instead = "set num_workers=0: a stream fetches and prepares batches ahead in threads of its own"
        if not all(self._opened.train[name].folder.local for name in self.sources):
            # The store's client has threads, which a forked process does not have: it would wait for them for ever.
            raise UserError(
                f"StreamingTokens: workers of a DataLoader cannot read from an object store; {instead}"
            )
        if self._begun_in[number]:
            raise UserError(
                "StreamingTokens: workers of a DataLoader have read this stream, and would repeat the same batches;"
                f" {instead}"
            )
        self._begun_in[number] = True
        self._stride = count
        self.step += number
        self._start()

    def __getstate__(self) -> dict[str, Any]:
        raise UserError(
            "StreamingTokens cannot be pickled for a spawned process: set num_workers=0, or fork it"
        )

    def sequences(self) -> SingleSequences:
        """This stream as a dataset of single sequences, which reads it on; for loops that make batches themselves."""
        return SingleSequences(self)

    def set_epoch(self, epoch: int) -> None:
        """Loops call this that divide a dataset among processes themselves (Accelerate, the Trainer of transformers): from
        now on, batches have only tensors that can be cut and joined by rows. The order needs no epoch.

        Raises `UserError` if the stream is one rank's part already.
        """
        if self.dp_world > 1:
            raise UserError(
                f"StreamingTokens: part {self.dp_rank} of {self.dp_world} would be divided among the processes once more:"
                " leave dp_rank and dp_world out, or do not let the loop prepare the stream's DataLoader"
            )
        self._by_rows = True

    def __next__(self) -> Mapping[str, Tensor]:
        if self.last is not None and self.step >= self.last:
            raise StopIteration
        # The first batch is built alone, and soon ready; then more and more of them together.
        while len(self._built) + self._coming <= self.config.prefetch:
            first = self.step + 1 + (len(self._built) + self._coming) * self._stride
            if self.last is not None and first > self.last:
                break
            most = min((self.config.prefetch + 1) // 2, first - self._begun) if self._stride == 1 else 1
            if self.last is not None:
                most = min(most, self.last - first + 1)
            count = self._builder.together(first, most)
            self._ahead.append((count, self._thread.submit(self._builder.build, first, count)))
            self._coming += count
        while not self._built:
            count, promise = self._ahead[0]
            self._built.extend(promise.result())
            self._ahead.popleft()
            self._coming -= count
        batch: Mapping[str, Tensor] = self._built.popleft()
        self.step += self._stride
        if not self.shift_labels:
            batch = unshifted(batch, self.config.masking is not None)
        return by_rows(batch) if self._by_rows else batch

    @property
    def n(self) -> int:
        """Sequences of the global batches so far, returned or skipped."""
        return self.plan.end_of(self.step)

    def state_dict(self) -> dict[str, Any]:
        """JSON: `n` is the position in the plan, the rest identifies the plan."""
        return {"v": 3, "n": self.n, "plan": self.plan.sha256, "made_of": self.plan.as_json()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at `state["n"]`.

        The plan may differ in steps still to come (stages, ramps, skips). Raises `UserError` naming the difference if it
        differs in past steps or in the data.
        """
        if state.get("v") != 3:
            raise WorkError(f"loader state: version {state.get('v')!r} is not supported (supported: 3)")
        if state.get("rows"):
            raise WorkError(
                f"loader state: within a batch, after {state['rows']} sequences of it: load it into stream.sequences()"
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
            self.log(
                f"data: continuing after step {step} on a changed plan ({state['plan'][:12]} ->"
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
        self.step = step

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
        self._thread.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> StreamingTokens:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_EMPTY: dict[str, Any] = {"stages": {}, "skip": {}, "sources": {}}


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
