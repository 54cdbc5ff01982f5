"""Accelerate: `prepare` divides a whole stream among the processes; a stream that is one rank's part goes on by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from tests.forks import launch
from tests.train.data.loops.parts import answers, flat, numbers, stream, taken, use


def loops(foreign: str, shards: str, folder: str) -> None:
    """n of the batches that this process gets, by the way that the loop reads; four, and two after an interruption."""
    use(foreign)
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    def accelerator(**options: Any) -> Any:
        return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))

    found: dict[str, Any] = {}
    plain = accelerator()
    rank, world = plain.process_index, plain.num_processes
    found["prepared"] = taken(plain.prepare(DataLoader(stream(shards), batch_size=None)), 4)
    found["sequences"] = taken(plain.prepare(DataLoader(stream(shards).sequences(), batch_size=4)), 4)
    sharding = accelerator(dispatch_batches=False)
    found["sharded"] = taken(sharding.prepare(DataLoader(stream(shards).sequences(), batch_size=4)), 4)

    def own() -> tuple[Any, Any]:
        part = stream(shards, dp_rank=rank, dp_world=world)
        made = accelerator()
        made.register_for_checkpointing(part)
        return made, part

    def stateful() -> tuple[Any, Any]:
        made = accelerator(use_stateful_dataloader=True)
        return made, made.prepare(DataLoader(stream(shards), batch_size=None))

    for make in (own, stateful) if world == 1 else (own,):
        saver, batches = make()
        seen = taken(batches, 4)
        saver.save_state(f"{folder}/{make.__name__}")
        saver.wait_for_everyone()  # the first process writes the state for all
        restored, batches = make()
        restored.load_state(f"{folder}/{make.__name__}")
        found[make.__name__] = seen + taken(batches, 2)
    if world > 1:
        try:
            next(
                iter(plain.prepare(DataLoader(stream(shards, dp_rank=rank, dp_world=world), batch_size=None)))
            )
        except UserError as refused:
            found["refused"] = str(refused)
    print(json.dumps(found))


def test_one_process(shards: Folder, foreign: str, tmp_path: Path) -> None:
    [found] = answers(launch(1, f"{__name__}:loops", foreign, shards.url, tmp_path))
    assert flat(found["prepared"]) == numbers(0, 4)
    assert flat(found["sequences"]) == flat(found["sharded"]) == numbers(0, 2)
    assert flat(found["own"]) == flat(found["stateful"]) == numbers(0, 6)


def test_two_processes(shards: Folder, foreign: str, tmp_path: Path) -> None:
    ranks = answers(launch(2, f"{__name__}:loops", foreign, shards.url, tmp_path))

    def both(way: str) -> list[int]:
        return flat(flat(step) for step in zip(*(rank[way] for rank in ranks), strict=True))

    assert both("prepared") == numbers(0, 8)  # a batch of the stream for each process
    assert both("sequences") == both("sharded") == numbers(0, 4)
    assert both("own") == numbers(0, 6)
    for number, rank in enumerate(ranks):
        assert f"part {number} of 2 would be divided among the processes once more" in rank["refused"]
