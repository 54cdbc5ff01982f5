"""How sequences are shared: each position once, the same work for all; and what a process then keeps of them."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest
import torch

from corpusmill.train.model.attend import visible_mask
from corpusmill.train.optim import make_optimizer
from corpusmill.train.parallel.context import Context
from corpusmill.train.parallel.mesh import World, join
from corpusmill.train.parallel.model import ParallelModel, build
from corpusmill.train.parallel.passing import parts_of, sources
from corpusmill.train.parallel.ring import _backward, _keep, ring, ring_backward
from corpusmill.train.tools.estimate.layout import Layout, shape_of
from corpusmill.train.tools.estimate.memory import Work, memory
from tests.forks import launch
from tests.train.models import saved_bytes
from tests.train.parallel.layouts import LENGTH, VOCAB, batch_of, config_of


def part(rank: int, size: int) -> Context:
    context = Context.__new__(Context)
    context.rank, context.size = rank, size
    return context


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [0, 3, 7])
@pytest.mark.parametrize(("length", "size"), [(8, 2), (24, 3), (32, 4)])
def test_parts_of_a_ring_are_all_that_is_visible_and_a_causal_one_has_half(
    length: int, size: int, window: int, causal: bool
) -> None:
    documents = (torch.arange(length) // 5)[None].repeat(2, 1)
    documents[1] = torch.arange(length) // 11
    each = length // size
    wanted = visible_mask(documents, documents, window or None, None, causal)[:, 0]
    found = torch.zeros_like(wanted)
    for rank in range(size):
        context, own, pairs = part(rank, size), torch.arange(each), 0
        q = torch.empty(2, 4, each, 8)
        assert sorted(sources(context)) == list(range(size)) and next(iter(sources(context))) == rank
        for source in range(size):
            for queries, keys, mask in parts_of(context, source, q, documents, window, causal):
                at, of = context.places(own, each)[queries], context.places(own, each, source)[keys]
                assert mask is not None and not found[:, at[:, None], of].any()
                found[:, at[:, None], of] = mask[:, 0]
            for queries, keys, _ in parts_of(context, source, q, None, 0, causal):
                pairs += len(own[queries]) * len(own[keys])
        assert pairs == (each * each * (size + 1) // 2 if causal else each * length)
    assert torch.equal(found, wanted)


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
    {"mla": {"kv_rank": 20, "q_rank": 28, "nope_head_dim": 10, "rope_head_dim": 6, "value_head_dim": 12}},
    {"mla": {"kv_rank": 24, "nope_head_dim": 8, "rope_head_dim": 8, "value_head_dim": 16}, "window": 6, "global_every": 2},
]  # fmt: skip
LONG = 8 * LENGTH
WIDE: dict[str, Any] = {"dim": 128, "heads": 4, "kv_heads": 2, "ffn_dim": 352}


def kept(model: ParallelModel) -> int:
    """Bytes that a forward pass keeps for the backward, the parameters' own left out."""
    rows = {name: value.repeat(1, 8) for name, value in batch_of(0).items() if name in ("tokens", "labels")}
    rows["positions"] = torch.arange(LONG).expand(len(rows["tokens"]), -1)
    rows["documents"] = rows["positions"] // 40
    part = model.own_part(rows)
    return saved_bytes(lambda: model.parts[0](**part), model.parameters())


def measured() -> None:
    """In each process: bytes kept with each of the models, keys gathered and in a ring."""
    for model in MODELS:
        for passing in (False, True):
            config = config_of(
                {"context": 2, "ring": passing}, {"model": model, "data": {"sequence_length": LONG}}
            )
            print(json.dumps(kept(build(config, VOCAB, join(config)))), flush=True)


class Opened(torch.autograd.Function):
    """The operator of the ring, with what it does in a tracker's sight."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        found = ring._init_fn(*given)
        _keep(ctx, given, found)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        with patch("corpusmill.train.parallel.ring.ring_backward", ring_backward._init_fn):
            return _backward(ctx, *grads)


PEAK = 1024


def peaks() -> None:
    """In each process: the highest moment of two steps on shared sequences, in bytes, with keys gathered and in a ring."""
    from torch.distributed._tools.mem_tracker import MemTracker

    for passing in (False, True):
        config = config_of(
            {"context": 2, "ring": passing}, {"model": WIDE, "data": {"sequence_length": PEAK}}
        )
        model = build(config, VOCAB, join(config))
        model.train()
        optimizer = make_optimizer(model, config.optimizer)
        ids = torch.arange(4 * PEAK).view(4, PEAK) % VOCAB
        part = model.own_part({"tokens": ids, "labels": ids, "positions": torch.arange(PEAK).expand(4, -1)})
        tracker = MemTracker()
        tracker.track_external(model.parts[0], *part.values())
        with tracker, patch("corpusmill.train.parallel.ring.ring", Opened.apply):
            for _ in range(2):
                for _ in range(2):
                    model.parts[0](**part).sum().backward()
                    tracker.reset_mod_stats()
                optimizer.step()
                optimizer.zero_grad()
        print(json.dumps(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]), flush=True)


def test_the_tracked_peak_of_steps_on_shared_sequences_is_estimated() -> None:
    done = launch(2, f"{__name__}:peaks")
    assert done.returncode == 0, done.stderr
    for line, passing in zip(done.outputs[0].splitlines(), (False, True), strict=True):
        config = config_of({}, {"model": WIDE, "data": {"sequence_length": PEAK}})
        work = Work(4, PEAK, 8, config.optimizer, precision="fp32", cpu=True)
        found = memory(shape_of(config.model, VOCAB), Layout(cp=2, ring=passing), work)
        assert found.total == pytest.approx(int(line), rel=0.05)


def test_what_a_process_keeps_of_shared_sequences_is_estimated() -> None:
    done = launch(2, f"{__name__}:measured")
    assert done.returncode == 0, done.stderr
    assert done.outputs[0] == done.outputs[1]
    lines = done.outputs[0].splitlines()
    for model, gathered, around in zip(MODELS, lines[::2], lines[1::2], strict=True):
        config = config_of({}, {"model": model, "data": {"sequence_length": LONG}})
        work = Work(8, LONG, 8, config.optimizer, precision="fp32", cpu=True, documents=True)
        shape = shape_of(config.model, VOCAB)
        log_softmax = 4 * work.tokens // 2 * shape.vocab
        for line, passing in ((gathered, False), (around, True)):
            found = memory(shape, Layout(cp=2, ring=passing), work)
            assert found.activations + log_softmax == pytest.approx(int(line), rel=0.02)
        assert int(around) < int(gathered)
        alone = kept(build(config, VOCAB, World()))
        whole = memory(shape, Layout(), work).activations + 2 * log_softmax
        assert whole == pytest.approx(alone, rel=0.02)
