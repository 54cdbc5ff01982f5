"""The process groups of a layout, and what is sent between processes beside gradients."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from corpusmill.schemas.parallel import ParallelConfig
from corpusmill.train.parallel.mesh import Flags, World, make_mesh
from tests.forks import launch


def test_every_group_has_the_timeout_of_the_watch() -> None:
    """PyTorch gives groups of some processes 10 or 30 minutes, whatever the group of all has."""
    done = launch(4, "tests.train.parallel.test_mesh:print_timeouts")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == 4 * ["123", "123", "123", "123", "123"], done.stdout + done.stderr


def print_timeouts() -> None:
    """In four processes: of each group of a mesh, in seconds."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=123))
    watch: Any = SimpleNamespace(backstop=123.0)
    mesh = make_mesh(
        ParallelConfig(tensor=2, pipeline=2), World(dist.get_rank(), 4, tensor=2, pipeline=2, watch=watch)
    )
    backends: list[Any] = [group._get_backend(torch.device("cpu")) for group in mesh.groups()]
    print(*(round(backend.options._timeout.total_seconds()) for backend in backends), flush=True)
    dist.barrier()
    os._exit(0)  # gloo's threads may outlive the interpreter's end


def test_flags_of_a_step_are_waited_for_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process waits for another within a step."""
    events: list[str] = []

    def all_reduce(values: torch.Tensor, async_op: bool = False) -> Any:
        assert async_op
        events.append("begun")

        def wait() -> None:
            events.append("waited")
            values.mul_(2)  # as if the other process had raised the same

        return SimpleNamespace(wait=wait)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    flags = Flags(World(size=2))
    assert flags(1.0, 0.0) == [0.0, 0.0] and events == ["begun"]
    assert flags(0.0, 1.0) == [2.0, 0.0] and events == ["begun", "waited", "begun"]
    assert flags.finish() == [0.0, 2.0] and flags.finish() == []
    assert events == ["begun", "waited", "begun", "waited"]


def test_gradients_are_views_of_the_buckets() -> None:
    """DistributedDataParallel without it keeps a second copy of all gradients."""
    done = launch(2, "tests.train.parallel.test_mesh:print_buckets")
    assert done.returncode == 0 and done.stdout.split() == ["True", "True"], done.stdout + done.stderr


def print_buckets() -> None:
    """In two processes: whether the gradients of a small model share few memories."""
    from corpusmill.train.parallel.model import build
    from tests.gpu.steps import VOCAB, config_of

    dist.init_process_group("gloo")
    model = build(config_of({}), VOCAB, World(dist.get_rank(), 2))
    module: Callable[..., Any] = model._module
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    module(tokens, tokens).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    print(len({g.untyped_storage().data_ptr() for g in gradients}) < len(gradients) / 2, flush=True)
    dist.barrier()
    os._exit(0)
