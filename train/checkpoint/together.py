"""Decisions that all processes take alike: one that failed alone would leave the others waiting for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.utils import _DistWrapper

from corpusmill.common.errors import UserError, WorkError

# It is what one process is for, and no news.
warnings.filterwarnings("ignore", message="torch.distributed is disabled")

Result = TypeVar("Result")
Group = Any  # a ProcessGroup; None: all processes


def place(group: Group = None) -> tuple[int, int]:
    """(rank, processes) in the group; (0, 1) where there is but one process."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def wrapper(group: Group = None) -> _DistWrapper:
    """PyTorch's own collectives of calls: an error in one process becomes a `CheckpointException` in all."""
    return _DistWrapper(group, place(group)[1] > 1, 0)


def together(call: Callable[[], Result], group: Group = None) -> list[Result]:
    """Each process's result of `call`, by rank, in every process. An error of one is raised in all."""
    return told(partial(wrapper(group).all_gather, "", call))


def first(call: Callable[[], Result], group: Group = None) -> Result:
    """What the first process finds, in every process; its error is raised in all."""
    return told(partial(wrapper(group).broadcast, "", call))


def told(call: Callable[[], Result]) -> Result:
    """A call of `torch.distributed.checkpoint`, which fails in all processes alike, with one line if it does."""
    try:
        return call()
    except CheckpointException as failed:
        error = failed.failures[min(failed.failures)][0]
        if not isinstance(error, Exception):  # the user's own interruption
            raise error from None
        if isinstance(error, UserError | WorkError):
            raise error from None
        raise WorkError(f"a checkpoint failed: {_line(error)}") from None
    except RuntimeError as error:  # of the connection itself
        raise WorkError(
            f"a checkpoint failed: the connection to another process is lost: {_line(error)}"
        ) from None


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no further words'])[0]}"
