"""torch's own DataLoader, and torchdata's StatefulDataLoader."""

from __future__ import annotations

import json
import pickle
from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from tests.forks import launch
from tests.train.conftest import write_shards
from tests.train.data.loops.parts import BATCH, answers, flat, numbers, stream, taken, use


def same(shards: str, workers: str) -> None:
    """Whether every tensor of every batch is the stream's own; and what a second iteration of the loader does."""
    wanted = list(stream(shards, max_epochs=1))
    loader = DataLoader(stream(shards, max_epochs=1), batch_size=None, num_workers=int(workers))
    batches = list(loader)
    equal = len(batches) == len(wanted) > 10 and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(batches, wanted, strict=True)
    )
    begun = stream(shards)
    next(begun)
    going_on = DataLoader(begun, batch_size=None, num_workers=int(workers))
    found = taken(going_on, 4)
    try:
        found += taken(going_on, 2)
        error = ""
    except UserError as refused:
        error = str(refused)
    print(json.dumps([equal, flat(found), error]))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_data_loader(shards: Folder, workers: int) -> None:
    [[equal, found, error]] = answers(launch(1, f"{__name__}:same", shards.url, workers))
    assert equal
    assert found == numbers(1, 5 if workers else 7)
    assert ("would repeat the same batches; set num_workers=0" in error) == bool(workers)


def test_single_sequences(shards: Folder) -> None:
    loader = DataLoader(stream(shards).sequences(), batch_size=6)
    batches = list(islice(loader, 8))
    assert flat(batch["n"].tolist() for batch in batches) == numbers(0, 6)
    assert {name: tensor.shape for name, tensor in batches[0].items()} == {
        **dict.fromkeys(("tokens", "labels", "documents", "positions"), (6, 24)), "source_id": (6,), "n": (6,),
    }  # fmt: skip
    tokens = torch.cat([batch["tokens"] for batch in islice(stream(shards), 6)])
    assert torch.equal(torch.cat([batch["tokens"] for batch in batches]), tokens)


@pytest.mark.s3
def test_workers_cannot_read_a_store(s3: str) -> None:
    write_shards(Folder(s3))
    with pytest.raises(UserError, match="cannot read from an object store; set num_workers=0"):
        next(iter(DataLoader(stream(s3), batch_size=None, num_workers=1)))


def test_a_stream_cannot_be_pickled(shards: Folder) -> None:
    with pytest.raises(UserError, match="set num_workers=0"):
        pickle.dumps(stream(shards))


def stateful(foreign: str, shards: str) -> None:
    """n of all batches, interrupted once: by workers, size of a batch of sequences (0: the stream's), and interruption."""
    use(foreign)
    from torchdata.stateful_dataloader import StatefulDataLoader

    found = {}
    for workers, size, cut in [(0, 0, 0), (0, 0, 5), (2, 0, 3), (0, 3, 4), (1, 5, 3)]:

        def make(workers: int = workers, size: int = size) -> StatefulDataLoader:
            data = stream(shards).sequences() if size else stream(shards)
            return StatefulDataLoader(data, batch_size=size or None, num_workers=workers)

        loader = make()
        seen = taken(loader, cut)
        state = json.loads(json.dumps(loader.state_dict()))
        again = make()
        again.load_state_dict(state)
        seen += taken(again, 8 - cut)
        found[f"{workers} {size} {cut}"] = flat(seen)
    print(json.dumps(found))


def test_stateful_data_loader(shards: Folder, foreign: str) -> None:
    [found] = answers(launch(1, f"{__name__}:stateful", foreign, shards.url))
    assert len(found) == 5
    for case, seen in found.items():
        size = int(case.split()[1])
        assert seen == list(range(8 * (size or BATCH))), case
