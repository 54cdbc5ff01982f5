"""The layout that follows the number of processes, which is another one when a machine is lost or has come."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.train.parallel.mesh import check_batches

if TYPE_CHECKING:
    from corpusmill.schemas.training import TrainConfig


class Fitted(NamedTuple):
    """`config` for the first `active` of the processes; `line` says what had to be lowered, if anything."""

    config: TrainConfig
    active: int
    line: str = ""


def fitted(config: TrainConfig, size: int) -> Fitted:
    """A config for `size` processes. With `parallel.elastic` as many of them as possible take part, with the largest
    `data.micro_batch` and `parallel.replicate` that they allow, at most those of the config. The global batches, and so the
    run, are the same for any number.

    Raises `UserError` with the numbers of processes that fit, if none up to this one does.
    """
    if not config.parallel.elastic:
        return Fitted(config, size)
    parallel, data = config.parallel, config.data
    each = parallel.pipeline * parallel.context * parallel.tensor
    batches = sorted({*data.batch_ramp.values(), data.global_batch})
    sizes = [n * each for n in range(1, math.gcd(*batches) + 1) if _lowered(config, n)]
    context = f" x context {parallel.context}" if parallel.context > 1 else ""
    what = f"batches of {' and '.join(map(str, batches))} sequences in pipeline {parallel.pipeline}{context} x tensor"
    what += f" {parallel.tensor} x expert {parallel.expert}"
    active = max((n for n in sizes if n <= size), default=0)
    found = _lowered(config, active // each)
    if found is None:
        fit = (
            f"start {_either(sizes[:4])}"
            if sizes
            else "no number of them can: change global_batch or the layout"
        )
        raise UserError(f"parallel: {_processes(size)} cannot share {what}: {fit}")
    lines = []
    if active < size:
        near = [*[n for n in sizes if n < size][-3:], *[n for n in sizes if n > size][:1]]
        lines.append(
            f"{size - active} of {_processes(size)} will wait, since {what} fit {_either(near)} processes"
        )
    for key, new, old in (
        ("data.micro_batch", found.data.micro_batch, data.micro_batch),
        ("parallel.replicate", found.parallel.replicate, parallel.replicate),
    ):
        if new != old:
            lines.append(f"{key} {old} is lowered to {new} for {_processes(active)}")
    return Fitted(found, active, f"elastic: {'; '.join(lines)}" if lines else "")


def _lowered(config: TrainConfig, ranks: int) -> TrainConfig | None:
    """The config for this number of data ranks, if there is one."""
    parallel, data = config.parallel, config.data
    batches = [*data.batch_ramp.values(), data.global_batch]
    sharing = ranks * parallel.context  # parameters
    if ranks < 1 or sharing % parallel.expert or any(batch % ranks for batch in batches):
        return None
    groups = sharing // parallel.expert
    replicate = next(n for n in range(parallel.replicate, 0, -1) if groups % n == 0)
    layout = parallel.model_copy(update={"replicate": replicate})
    for micro in range(data.micro_batch, 0, -1):
        changes = {"data": data.model_copy(update={"micro_batch": micro}), "parallel": layout}
        found = config.model_copy(update=changes)
        try:
            check_batches(found, ranks)
        except UserError:
            continue
        return found
    return None


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _either(numbers: list[int]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last
