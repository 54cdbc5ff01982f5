"""Calls with the same outcome in all processes of a group: one that failed alone would leave the others waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import torch.distributed as dist

from corpusmill.common.errors import UserError, WorkError

Result = TypeVar("Result")
Other = TypeVar("Other")
Group = Any  # a ProcessGroup; None: all processes


class Failure(NamedTuple):
    """What a process sends in place of a result."""

    error: BaseException


def place(group: Group = None) -> tuple[int, int]:
    """(rank, processes) in the group; (0, 1) without `torch.distributed`."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def alone(call: Callable[[], Result]) -> Result:
    """The result of `call` in this process. Errors are `UserError`s and `WorkError`s of one line."""
    return _results([_outcome(call)])[0]


def together(call: Callable[[], Result], group: Group = None) -> list[Result]:
    """Each process's result of `call`, by rank, in every process. An error of one is raised in all."""
    mine, size = _outcome(call), place(group)[1]
    found: list[Result | Failure] = [mine] * size
    if size > 1:
        with _connection():
            dist.all_gather_object(found, mine, group)
    return _results(found)


def first(call: Callable[[], Result], group: Group = None) -> Result:
    """The first process's result of `call`, in every process; its error is raised in all."""
    rank, size = place(group)
    found: list[Result | Failure | None] = [_outcome(call) if rank == 0 else None]
    if size > 1:
        with _connection():
            dist.broadcast_object_list(found, group=group, group_src=0)
    return _results(cast(list[Result | Failure], found))[0]


def gathered(
    call: Callable[[], Result], decide: Callable[[list[Result]], Sequence[Other]], group: Group = None
) -> Other:
    """The first process decides by all results of `call`, in the order of ranks, and each process gets its share of the
    decision. An error of one process is raised in all."""
    (rank, size), mine = place(group), _outcome(call)
    if size == 1:
        return alone(lambda: decide(_results([mine]))[0])
    found = cast(list[Result | Failure], [None] * size)
    share = cast(list[Other | Failure], [None])
    with _connection():
        dist.gather_object(mine, found if rank == 0 else None, group=group, group_dst=0)
        decided: Sequence[Other] | Failure = Failure(WorkError(""))
        if rank == 0:
            decided = _outcome(lambda: decide(_results(found)))
        shares = [decided] * size if isinstance(decided, Failure) else list(decided)
        dist.scatter_object_list(share, shares, group=group, group_src=0)
    return _results(share)[0]


def _outcome(call: Callable[[], Result]) -> Result | Failure:
    try:
        return call()
    except (UserError, WorkError) as error:
        return Failure(error.with_traceback(None))
    except Exception as error:
        return Failure(WorkError(f"a checkpoint failed: {_line(error)}"))
    except BaseException as error:  # the user's own interruption
        return Failure(error.with_traceback(None))


def _results(found: Sequence[Result | Failure]) -> list[Result]:
    """The results, or the first failure raised."""
    for result in found:
        if isinstance(result, Failure):
            raise result.error from None
    return cast(list[Result], list(found))


@contextmanager
def _connection() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise WorkError(
            f"a checkpoint failed: the connection to another process is lost: {_line(error)}"
        ) from None


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no further words'])[0]}"
