"""How sequences are shared: each position once, the same work for all; and what a process then keeps of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from corpusmill.train.parallel.context import Context
from corpusmill.train.parallel.mesh import World, join
from corpusmill.train.parallel.model import ParallelModel, build
from corpusmill.train.tools.estimate.layout import Layout, shape_of
from corpusmill.train.tools.estimate.memory import Work, memory
from tests.forks import launch
from tests.train.models import saved_bytes
from tests.train.parallel.layouts import LENGTH, VOCAB, batch_of, config_of


def part(rank: int, size: int) -> Context:
    context = Context.__new__(Context)
    context.rank, context.size = rank, size
    return context


@pytest.mark.parametrize(("length", "size"), [(8, 2), (96, 4), (4096, 16)])
def test_each_position_is_one_process_s_and_all_attend_to_as_many(length: int, size: int) -> None:
    each = length // size
    places = [part(rank, size).places(torch.arange(each), each) for rank in range(size)]
    assert torch.cat(places).sort().values.tolist() == list(range(length))
    # A position attends to those up to itself; two chunks from opposite ends balance to one position of each other.
    assert {int((own + 1).sum()) for own in places} == {length * (length + 1) // 2 // size}
    assert all((own.diff() > 0).all() for own in places)


def test_rows_are_cut_and_documents_stay_whole() -> None:
    rows = torch.arange(24).view(2, 12)
    given = {
        "tokens": rows,
        "labels": rows + 1,
        "positions": rows % 12,
        "documents": rows // 5,
        "n": torch.tensor([3, 4]),
    }
    found = part(1, 3).cut(given)
    assert found["places"].tolist() == [[2, 3, 8, 9]] * 2
    assert found["tokens"].tolist() == [[2, 3, 8, 9], [14, 15, 20, 21]]
    assert found["positions"].tolist() == found["places"].tolist()
    assert torch.equal(found["labels"], found["tokens"] + 1)
    assert found["documents"] is given["documents"] and found["n"] is given["n"]


MODELS: list[dict[str, Any]] = [
    {"kv_heads": 2}, {"qk_norm": True, "window": 6, "global_every": 2}, {"attention_sinks": True, "kv_heads": 2},
]  # fmt: skip
LONG = 8 * LENGTH


def kept(model: ParallelModel) -> int:
    """Bytes that a forward pass keeps for the backward, the parameters' own left out."""
    rows = {name: value.repeat(1, 8) for name, value in batch_of(0).items() if name in ("tokens", "labels")}
    rows["positions"] = torch.arange(LONG).expand(len(rows["tokens"]), -1)
    rows["documents"] = rows["positions"] // 40
    part = model.own_part(rows)
    return saved_bytes(lambda: model.parts[0](**part), model.parameters())


def measured() -> None:
    """In each process: bytes kept with each of the models."""
    for model in MODELS:
        config = config_of({"context": 2}, {"model": model, "data": {"sequence_length": LONG}})
        print(json.dumps(kept(build(config, VOCAB, join(config)))), flush=True)


def test_what_a_process_keeps_of_shared_sequences_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "corpusmill.train.tools.estimate.memory.WEIGHTS", 0
    )  # which the backward pass alone has
    done = launch(2, f"{__name__}:measured")
    assert done.returncode == 0, done.stderr
    assert done.outputs[0] == done.outputs[1]
    for model, line in zip(MODELS, done.outputs[0].splitlines(), strict=True):
        config = config_of({}, {"model": model, "data": {"sequence_length": LONG}})
        work = Work(8, LONG, 8, config.optimizer, precision="fp32", cpu=True, documents=True)
        shape = shape_of(config.model, VOCAB)
        found = memory(shape, Layout(cp=2), work)
        log_softmax = 4 * work.tokens // 2 * shape.vocab
        assert found.activations + log_softmax == pytest.approx(int(line), rel=0.02)
        alone = kept(build(config, VOCAB, World()))
        whole = memory(shape, Layout(), work).activations + 2 * log_softmax
        assert whole == pytest.approx(alone, rel=0.02)
