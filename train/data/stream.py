"""`StreamingTokens`: the batches of a plan as torch tensors, built ahead of their use, resumed by one number."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future as Promise
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.schemas.data import DataConfig
from corpusmill.train.data.build import Batch, Builder
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.order import Future
from corpusmill.train.data.plan import Plan, difference, past
from corpusmill.train.data.planning import caps_reached, make_plan
from corpusmill.train.data.shards import Shards, open_tokens


class StreamingTokens:
    """Endless batches of one data-parallel rank; the concatenation of the ranks' batches is the global batch.

        stream = StreamingTokens("runs/quickstart/shards", sequence_length=256, global_batch=64, seed=1)
        for batch in stream:
            loss = model(batch["tokens"], batch["labels"])

    Every key of the `data` section of a training config is a keyword here (`corpusmill.schemas.data.DataConfig`). A batch has
    this rank's rows: `tokens`, `labels`, `documents`, `positions` (integers [rows, length]), `cu_seqlens` (int32
    [documents + 1]) and `max_seqlen` (int32 []) for variable-length attention, `source_id` (int64 [rows], an index of
    `self.sources`) and `n` (int64 [rows], the global sequence numbers). Where documents begin: `corpusmill.train.data.pack`.
    `tokens` and `labels` share memory: clone one before writing into it.

    State is `{"v", "n", "plan"}` and the description of the plan, the same on every rank: any number of ranks resumes from
    it. With `max_epochs` it ends before a batch in which a source would be read more often. torch.distributed is not used: ranks that read the same data pass the same `dp_rank`.
    """

    def __init__(
        self,
        shards: str | Shards,
        *,
        plan: Plan | None = None,
        seed: int = 0,
        dp_rank: int = 0,
        dp_world: int = 1,
        log: Callable[[str], None] = partial(print, file=sys.stderr),
        **data: Any,
    ) -> None:
        url = shards if isinstance(shards, str) else shards.folder.url
        self.config = validate(DataConfig, {"micro_batch": 1, **data, "shards": url}, "StreamingTokens")
        if isinstance(shards, str):
            opened = open_tokens(url, self.config.token_cache, self.config.tokenizer, log)
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
        self.sources = [source.name for source in self.plan.sources]
        self.step = 0  # the last one whose batch was returned
        self.log = log
        read = [opened.train[name] for name in self.sources]
        self._blocks = Blocks(read, self.config.fetch, Future(self.plan, dp_rank, dp_world).next_use, log)
        self._builder = Builder(self.plan, self._blocks, opened.set.eos_id, dp_rank, dp_world)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: deque[tuple[int, Promise[list[Batch]]]] = deque()
        self._built: deque[Batch] = deque()
        self._coming, self._begun = 0, 0  # steps that are being built; the step that this stream began after

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.last is not None and self.step >= self.last:
            raise StopIteration
        # The first batch is built alone, and soon ready; then more and more of them together.
        while len(self._built) + self._coming <= self.config.prefetch:
            first = self.step + 1 + len(self._built) + self._coming
            if self.last is not None and first > self.last:
                break
            most = min((self.config.prefetch + 1) // 2, first - self._begun)
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
        batch = self._built.popleft()
        self.step += 1
        return batch

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
