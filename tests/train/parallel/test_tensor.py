"""What the processes of a tensor-parallel group send each other, and in which type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from corpusmill.train.parallel import collectives, tensor
from corpusmill.train.parallel.tensor import TensorSplit
from tests.conftest import IMPORT_PATH, ROOT


@pytest.mark.parametrize(("exact", "dtype"), [(False, torch.bfloat16), (True, torch.float32)])
def test_sequences_travel_in_the_type_of_the_products(
    exact: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways; a router's in float32. Half the bytes, and what the products get is the same: they round as well."""
    sent: list[torch.dtype] = []

    def gathered(x: Tensor, _split: TensorSplit) -> Tensor:
        sent.append(x.dtype)
        return torch.cat((x, x), dim=1)

    def scattered(x: Tensor, _split: TensorSplit) -> Tensor:
        sent.append(x.dtype)
        return x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]

    monkeypatch.setattr(tensor, "_gathered", gathered)
    monkeypatch.setattr(tensor, "_scattered", scattered)
    split = object.__new__(TensorSplit)
    split.size = 2
    x = torch.randn(2, 3, 8, requires_grad=True)
    weight = torch.randn(5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = torch.nn.functional.linear(split.gather(x, exact), weight)
        assert torch.equal(y, torch.nn.functional.linear(torch.cat((x, x), dim=1), weight))
    y.float().sum().backward()
    assert sent == [dtype, dtype] and x.grad is not None and x.grad.dtype == torch.float32
    sent.clear()
    assert split.gather(x.detach()).dtype == torch.float32  # without autocast as it is


class Sent:
    """Collectives of two processes that hold the same, and the order in which they and products are begun and waited for."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def all_gather_single(self, x: Tensor, dim: int, _group: Any) -> Tensor:
        self.events.append("gather")
        assert dim == 0  # along another dimension PyTorch waits
        return torch.cat((x, x))

    def reduce_scatter_single(self, x: Tensor, operation: str, dim: int, _group: Any) -> Tensor:
        self.events.append("scatter")
        assert operation == "sum"
        first, second = x.chunk(2, dim)
        return first + second

    def wait_tensor(self, x: Tensor) -> Tensor:
        self.events.append("wait")
        return x


class Products(TorchDispatchMode):
    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events = events

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.events.append("product")
        return function(*args, **(kwargs or {}))


def of_two(monkeypatch: pytest.MonkeyPatch, overlap: bool = True) -> TensorSplit:
    split = object.__new__(TensorSplit)
    split.size, split.group, split.name, split.overlap = 2, None, "two", overlap  # type: ignore[assignment]
    monkeypatch.setitem(tensor._SPLITS, "two", split)
    return split


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bf16", [False, True])
def test_what_is_sent_is_on_its_way_during_products(
    bias: bool, bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent()
    monkeypatch.setattr(collectives, "functional", lambda: sent)
    monkeypatch.setattr(tensor, "_columns_backward", tensor._overlapped)  # else its products are not seen
    split = of_two(monkeypatch)
    torch.manual_seed(1)
    up, gate = nn.Linear(8, 6, bias=bias), nn.Linear(8, 5, bias=bias)
    x = torch.randn(2, 3, 8)
    slopes = torch.randn(2, 6, 6), torch.randn(2, 6, 5)

    def gradients(at_once: bool) -> list[Tensor]:
        given = x.clone().requires_grad_()
        up.zero_grad()
        gate.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            made = (
                split.products(given, up, gate) if at_once else [w(split.gather(given)) for w in (up, gate)]
            )
        kept = [*made, sum((y.float() * slope).sum() for y, slope in zip(made, slopes, strict=True))]
        sent.events.clear()
        with Products(sent.events):
            kept[-1].backward()  # type: ignore[union-attr]
        found = [given.grad, *(p.grad for layer in (up, gate) for p in layer.parameters())]
        return [*made, *(t for t in found if t is not None)]

    apart, together = gradients(False), gradients(True)
    assert sent.events == ["gather", *2 * ["product"], "scatter", "wait", *2 * ["product"], "wait"]
    assert len(apart) == len(together) == (7 if bias else 5)
    for one, other in zip(apart, together, strict=True):
        torch.testing.assert_close(other, one, atol=2e-2 if bf16 else 1e-6, rtol=2e-2 if bf16 else 1e-6)


def test_the_gathered_sequence_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "functional", Sent)
    split = of_two(monkeypatch)
    kept: list[int] = []
    x = torch.randn(2, 3, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):  # type: ignore[func-returns-value]
        made = split.products(x, nn.Linear(8, 6, bias=False), nn.Linear(8, 5, bias=False))
    assert sorted(kept) == [5 * 8, 6 * 8, 2 * 3 * 8] and [y.shape[1] for y in made] == [6, 6]


def test_a_frozen_product_costs_no_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent()
    monkeypatch.setattr(collectives, "functional", lambda: sent)
    split = of_two(monkeypatch)
    layer = nn.Linear(8, 6).requires_grad_(requires_grad=False)
    x = torch.randn(2, 3, 8, requires_grad=True)
    (made,) = split.products(x, layer)
    sent.events.clear()
    made.sum().backward()
    assert sent.events == ["scatter", "wait"] and layer.weight.grad is None and layer.bias.grad is None
    whole = torch.cat((x, x), dim=1).detach().requires_grad_()
    F.linear(whole, layer.weight).sum().backward()
    assert whole.grad is not None
    torch.testing.assert_close(x.grad, whole.grad[:, :3] + whole.grad[:, 3:])


COMPILED = """
import json, torch, torch.distributed as dist
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.testing._internal.distributed.fake_pg import FakeStore
from corpusmill.train.parallel.tensor import TensorSplit
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
graphs, kept = [], []
def seen(graph, inputs):
    graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
    return graph.forward
split, up, gate = TensorSplit(dist.group.WORLD), nn.Linear(8, 6), nn.Linear(8, 5)
backend = aot_autograd(fw_compiler=seen, bw_compiler=seen, partition_fn=min_cut_rematerialization_partition)
made = torch.compile(lambda x: split.products(x.sin(), up, gate), fullgraph=True, backend=backend)
x = torch.randn(2, 3, 8, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(list(t.shape)) or t, lambda t: t):
    first, second = made(x)
(first.sum() + second.sum()).backward()
print(json.dumps({"graphs": graphs, "kept": kept, "shapes": [list(x.grad.shape), list(up.weight.grad.shape)]}))
"""


def test_compiled_code_gathers_again_and_keeps_no_gathered_sequence() -> None:
    """In a process of its own, with a group that sends nothing: the compiler would keep what the forward pass gathered."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": IMPORT_PATH}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    forward, backward = found["graphs"]
    assert any("all_gather" in name for name in forward)
    assert [name for name in backward if "corpusmill" in name] == ["corpusmill.columns_backward.default"]
    assert (
        not [shape for shape in found["kept"] if 6 in shape[:2] and shape != [6, 8]]
        and [2, 3, 8] in found["kept"]
    )
    assert found["shapes"] == [[2, 3, 8], [6, 8]]


def test_a_schedule_that_splits_the_backward_pass_has_products_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collectives, "functional", Sent)
    x = torch.randn(2, 3, 8, requires_grad=True)
    first, second = of_two(monkeypatch, overlap=False).products(x, nn.Linear(8, 6), nn.Linear(8, 5))
    assert not [y for y in (first, second) if "_Columns" in type(y.grad_fn).__name__]
