"""The store through which the processes of a run find each other, at the first start and after restarts."""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist

from corpusmill.common.errors import WorkError

POLL = 0.02  # seconds
ARRIVAL = 300.0  # seconds that processes wait for each other at least: machines do not start at once


class Meeting(NamedTuple):
    """`store` and `watch`, a connection of its own: what the processes of this attempt write there no other one reads. `name`: of
    the attempt."""

    store: Any
    watch: Any
    name: str


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def meet(rank: int, size: int, timeout: float) -> Meeting:
    """Meet the other processes of this attempt.

    torchrun keeps its store when it starts processes again, with keys that lead to those that are gone (pytorch#135712);
    and its count of restarts is each machine's own. So the first process gives every other one that arrives a name for this
    attempt. Raises `WorkError` if some do not arrive within `timeout` seconds, or `ARRIVAL` if that is longer.
    """
    timeout = max(timeout, ARRIVAL)
    stores: Any = dist  # which exports them under a condition that type checkers do not follow
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        store = stores.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=rank == 0 and not agents,
            wait_for_workers=False, timeout=timedelta(seconds=timeout),
        )  # fmt: skip
        name = mine = uuid.uuid4().hex
        store.set(f"corpusmill/arrived/{rank}", mine)
        if rank == 0:
            _receive(store, mine, size, timeout)
        else:
            name = store.get(f"corpusmill/attempt/{mine}").decode()
            store.set(f"corpusmill/here/{name}/{rank}", b"")
        watch = stores.PrefixStore(f"watch-{name}", store.clone())
        return Meeting(stores.PrefixStore(f"attempt-{name}", store), watch, name)
    except RuntimeError as error:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise WorkError(f"the store of the processes, {place}: {str(error).splitlines()[0]}") from None


def _receive(store: Any, name: str, size: int, timeout: float) -> None:
    """In the first process: answer everyone who arrives, until all are here. An answer to a process that is gone is lost."""
    missing, answered, end = list(range(1, size)), set[bytes](), time.monotonic() + timeout
    while missing:
        for rank in missing:
            if store.check([key := f"corpusmill/arrived/{rank}"]) and (one := store.get(key)) not in answered:
                store.set(f"corpusmill/attempt/{one.decode()}", name)
                answered.add(one)
        missing = [rank for rank in missing if not store.check([f"corpusmill/here/{name}/{rank}"])]
        if missing and time.monotonic() > end:
            some = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            raise WorkError(f"{len(missing)} of {size} processes did not arrive within {timeout:g} s: {some}")
        time.sleep(POLL if missing else 0)
