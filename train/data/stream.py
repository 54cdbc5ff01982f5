"""`StreamingTokens`: the batches of a plan as torch tensors, ahead of their use, resumed by one number."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from schemas.errors import UserError, WorkError
from schemas.training import DataConfig
from train.data.fetch import Blocks
from train.data.order import order
from train.data.plan import Plan, difference, make_plan
from train.data.rows import rows
from train.data.shards import Shards, open_shards

Batch = dict[str, torch.Tensor]


class StreamingTokens:
    """Endless batches of one data-parallel rank; ranks' batches, put together in order, are the global batch.

        stream = StreamingTokens("runs/quickstart/shards", sequence_length=256, global_batch=64, seed=1)
        for batch in stream:
            loss = model(batch["tokens"], batch["labels"])

    A batch holds, for its `rows` = global_batch / dp_world: `tokens`, `labels`, `documents`, `positions`
    (integers [rows, sequence_length]), `source_id` (int64 [rows], a place in `self.sources`) and `n` (int64 [rows], the
    global sequence numbers). Attention is meant to stay within `documents`; `train.data.rows` says where they begin.

    State is `{"v", "n", "plan"}` and what the plan is made of, the same on every rank: any number of ranks takes it up.
    Knows nothing of torch.distributed: ranks that see the same data pass the same `dp_rank`.
    """

    def __init__(
        self,
        shards: str | Shards,
        *,
        plan: Plan | None = None,
        weights: dict[str, float] | None = None,
        sequence_length: int = 2048,
        global_batch: int = 64,
        window_blocks: int = 4,
        seed: int = 0,
        dp_rank: int = 0,
        dp_world: int = 1,
        prefetch: int = 4,
        cache_mb: float = 256.0,
    ) -> None:
        opened = open_shards(shards) if isinstance(shards, str) else shards
        if plan is None:
            config = DataConfig(
                shards=opened.folder.url, weights=weights or {}, sequence_length=sequence_length,
                global_batch=global_batch, micro_batch=1, window_blocks=window_blocks,
            )  # fmt: skip
            plan = make_plan(config, opened, seed)
        if plan.global_batch % dp_world:
            raise UserError(
                f"data.global_batch: {plan.global_batch} sequences cannot be dealt to {dp_world} processes:"
                f" set it to {-(-plan.global_batch // dp_world) * dp_world}"
            )
        if not 0 <= dp_rank < dp_world:
            raise UserError(f"dp_rank {dp_rank}: must be 0 to {dp_world - 1} (dp_world is {dp_world})")
        self.plan = plan
        self.sources = [source.name for source in plan.sources]
        self.n = 0
        self.prefetch = prefetch
        share = plan.global_batch // dp_world
        self._slots = np.arange(dp_rank * share, (dp_rank + 1) * share)
        self._blocks = Blocks([opened.train[name] for name in self.sources], cache_mb)
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._ahead: deque[Future[Batch]] = deque()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        while len(self._ahead) <= self.prefetch:
            self._ahead.append(
                self._builder.submit(self.build, self.n + len(self._ahead) * self.plan.global_batch)
            )
        batch = self._ahead[0].result()
        self._ahead.popleft()
        self.n += self.plan.global_batch
        return batch

    def build(self, n: int) -> Batch:
        """This rank's part of the batch that starts at global sequence number `n`. Pure but for the cache."""
        numbers = n + self._slots
        at = order(self.plan, numbers)
        keys = [(int(s), int(b)) for s, b in zip(at.source, at.block, strict=True)]
        blocks = self._blocks.get(keys)
        found = rows(
            ((blocks[key], int(sequence)) for key, sequence in zip(keys, at.sequence, strict=True)),
            self.plan.sequence_length,
        )
        batch = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in found.items()}
        return {**batch, "source_id": torch.from_numpy(at.source), "n": torch.from_numpy(numbers)}

    def state_dict(self) -> dict[str, Any]:
        """JSON. `n` counts the sequences of whole global batches that were handed out."""
        return {"v": 1, "n": self.n, "plan": self.plan.sha256, "made_of": self.plan.as_json()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at `state["n"]`. Raises `UserError` naming the difference if the state is of another plan."""
        if state.get("v") != 1:
            raise WorkError(
                f"loader state: version {state.get('v')!r} is not known to this program (it knows 1)"
            )
        if state["plan"] != self.plan.sha256:
            lines = difference(state.get("made_of", {}), self.plan.as_json())
            raise UserError(
                "the data plan is not the one that the state was made with: "
                + ("; ".join(lines) if lines else f"{state['plan'][:12]} -> {self.plan.sha256[:12]}")
                + "; restore it, or start a new run in another output"
            )
        if state["n"] % self.plan.global_batch:
            raise WorkError(
                f"loader state: n {state['n']} is not a multiple of global_batch {self.plan.global_batch}"
            )
        for future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self.n = int(state["n"])

    @property
    def fetched(self) -> dict[str, int]:
        """Requests, bytes and retries so far."""
        return {
            "requests": self._blocks.requests, "bytes": self._blocks.fetched_bytes, "retries": self._blocks.retries
        }  # fmt: skip

    def close(self) -> None:
        self._blocks.close()
        self._builder.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> StreamingTokens:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
