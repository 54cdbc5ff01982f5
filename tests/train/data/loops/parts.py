"""What the loops share. Their functions run in processes made by `launch`, and print what the model was given as JSON."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch

from corpusmill.common.storage import Folder
from corpusmill.train.data import StreamingTokens
from tests.forks import Finished

T, BATCH = 24, 8


def use(foreign: str) -> None:
    """Make the foreign packages importable in this process."""
    sys.path.append(foreign)
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def stream(shards: str | Folder, **options: Any) -> StreamingTokens:
    base: dict[str, Any] = {
        "weights": {"wiki": 2, "books": 1, "code": 1}, "sequence_length": T, "global_batch": BATCH, "window_blocks": 2,
        "seed": 3, "prefetch": 3,
    }  # fmt: skip
    return StreamingTokens(shards if isinstance(shards, str) else shards.url, **{**base, **options})


def taken(batches: Iterable[Any], count: int, name: str = "n") -> list[Any]:
    """`name` of the next batches, as lists."""
    return [batch[name].tolist() for batch in islice(batches, count)]


def numbers(first: int, last: int) -> list[int]:
    """The sequence numbers of the batches after `first` up to `last`."""
    return list(range(first * BATCH, last * BATCH))


def flat(batches: Iterable[Iterable[Any]]) -> list[Any]:
    return [row for batch in batches for row in batch]


def answers(done: Finished) -> list[Any]:
    """The last line that each process printed."""
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(output.strip().splitlines()[-1]) for output in done.outputs]
