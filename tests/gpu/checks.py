"""The ten checks. Each is a function of a `Machine`, raises `AssertionError`, and raises `NotHere` where the machine lacks what it
is about."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.schemas.model import ModelConfig
from corpusmill.train.batch import micro_batches
from corpusmill.train.model.attend import Boundaries, attend, boundaries, sequence_starts, visible_mask
from corpusmill.train.model.blockwise import Scores
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.moe import grouped, grouped_mm, one_by_one
from corpusmill.train.parallel.fsdp import shard
from corpusmill.train.parallel.mesh import World, make_mesh
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.precision.adapt import offload_policy
from corpusmill.train.precision.fp8 import CAPABLE
from corpusmill.train.step import train_step
from tests.gpu.machines import Machine
from tests.gpu.steps import CASES, KINDS, VOCAB, batch_of, bits, config_of, finished, scored, state_of

ROOT = Path(__file__).resolve().parents[2]
FREE = (math.inf, math.inf)


class NotHere(Exception):
    """Why a check cannot run on this machine."""


def no_waits(machine: Machine, cases: dict[str, dict[str, Any]] = CASES, compiled: bool = False) -> None:
    """A step makes the host wait for the device not once, logged or not: every optimizer, precision, kind of batch."""
    for name, settings in cases.items():
        state = state_of(machine, settings, compiled)
        data = [batch_of(number, state.config) for number in range(5)]
        for number, batch in enumerate(data):
            state.limits = FREE if state.config.guard.enabled else None
            with machine.watched() as waits:
                metrics = train_step(state, batch, scored(batch), collect_stats=number == 3)
            # The first two allocate, compile, and make what is kept.
            assert number < 2 or not waits, f"{name}, step {number}: {waits}"
        assert math.isfinite(float(metrics.grad_norm)) and math.isfinite(float(state.window.sum())), name


def found_inf(machine: Machine) -> None:
    """A step beyond the guard's limits changes no bit of weights and states, whatever the optimizer, and does not wait."""
    for kind in KINDS:
        state = state_of(machine, {"optimizer.kind": kind, "precision": "bf16"})
        for number in range(2):
            batch = batch_of(number, state.config)
            state.limits = FREE
            train_step(state, batch, scored(batch))
        before = bits(state)
        for logged in (False, True):
            state.limits = (-math.inf, -math.inf)
            with machine.watched() as waits:
                metrics = train_step(state, batch, scored(batch), logged)
            assert not waits, (kind, waits)
        assert metrics.update_norm is not None and float(metrics.update_norm) == 0.0, kind
        after = bits(state)
        assert before.keys() == after.keys()
        assert all(torch.equal(after[name], before[name]) for name in before), kind
        state.limits = FREE
        train_step(state, batch, scored(batch))
        moved = [n for n, t in bits(state).items() if torch.equal(t, before[n]) and t.dim() > 1]
        assert not moved, (kind, moved)


def offloaded_optimizer(machine: Machine) -> None:
    """`memory.offload: optimizer` under the guard: losses of the device, norms and updates of the host; the run is that of
    one process that offloads nothing, and a step that is not taken changes no bit."""
    settings = {"memory.offload": "optimizer", "parallel.zero": 2}
    plain, config = state_of(machine, {}), config_of(settings)
    backend = "gloo" if machine.device.type == "cpu" else "cpu:gloo,cuda:nccl"
    mine = not dist.is_initialized()
    if mine:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = make_mesh(config.parallel, World(device=machine.device))
        with torch.device("meta"):
            part = Decoder(config.model, VOCAB)
        shard(part, mesh, None, offload_policy(config.memory))
        part.to_empty(device="cpu")
        model = ParallelModel([part], World(device=machine.device), mesh)
        model.initialise(config.seed)
        state = finished(config, model, machine)
        for number in range(4):
            batch = batch_of(number, config)
            for each in (plain, state):
                each.limits = FREE if number != 2 else (-math.inf, -math.inf)
                before = bits(each) if number == 2 else {}
                metrics = train_step(each, batch, scored(batch), collect_stats=number == 3)
                assert all(torch.equal(t, before[name]) for name, t in bits(each).items() if before)
        assert metrics.signals is not None and metrics.signals.device.type == machine.device.type
        assert {t.device.type for t in map(_here, state.model.parameters())} == {"cpu"}
        torch.testing.assert_close(state.window.cpu(), plain.window.cpu(), atol=0.0, rtol=1e-3)
        for name, value in bits(plain).items():
            torch.testing.assert_close(bits(state)[name], value, atol=1e-3, rtol=1e-2, msg=name)
    finally:
        if mine:
            dist.destroy_process_group()


def _here(parameter: Any) -> Tensor:
    found: Tensor = parameter.to_local()
    return found


def variable_length(machine: Machine) -> None:
    """Attention of packed documents in bf16, given where they begin, equals attention under their mask, with a window and without."""
    for window in (None, 20):
        _attention(machine, torch.bfloat16, "cu_seqlens", 3e-2, {"window": window})


def flexible(machine: Machine) -> None:
    """The same in float32, by FlexAttention, whose block mask is made in compiled code; with capped scores and sinks in either type."""
    for window in (None, 20):
        _attention(machine, torch.float32, "blocks", 5e-3, {"window": window})
    more = {"attention_softcap": 2.0, "attention_sinks": True, "window": 20}
    _attention(machine, torch.float32, "blocks", 5e-3, more)
    _attention(machine, torch.bfloat16, "blocks", 3e-2, more)


def _attention(machine: Machine, dtype: torch.dtype, kernel: str, near: float, more: dict[str, Any]) -> None:
    config = ModelConfig(dim=256, heads=4, kv_heads=2, **more)
    generator = torch.Generator().manual_seed(3)
    starts = torch.rand(2, 256, generator=generator) < 0.03
    documents = starts.cumsum(1)
    q, k, v = (torch.randn(2, heads, 256, 64, generator=generator).to(dtype) for heads in (4, 2, 2))
    slope = torch.randn(2, 4, 256, 64, generator=generator)
    sinks = torch.linspace(-1, 1, 4) if config.attention_sinks else None
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    under = Boundaries(mask=visible_mask(documents, documents, config.window))
    wanted = attend(exact[0], exact[1], exact[2], under, Scores(config.attention_softcap, sinks))
    (wanted * slope).sum().backward()
    here = [machine.moved(x).requires_grad_() for x in (q, k, v)]
    numbers = machine.moved(documents)
    cu_seqlens = machine.moved(sequence_starts(documents)) if kernel == "cu_seqlens" else None
    within = boundaries(numbers, numbers, cu_seqlens, dtype, config).of(config.window is not None)
    assert getattr(within, kernel) is not None, f"{kernel} is not used"
    scores = Scores(config.attention_softcap, None if sinks is None else machine.moved(sinks))
    found = attend(here[0], here[1], here[2], within, scores)
    (found * machine.moved(slope)).sum().backward()
    torch.testing.assert_close(found.detach().cpu().double(), wanted.detach(), atol=near, rtol=near)
    for got, want in zip(here, exact, strict=True):
        assert got.grad is not None and want.grad is not None
        difference = (got.grad.cpu().double() - want.grad).norm() / want.grad.norm()
        assert float(difference) < near, float(difference)


def fp8(machine: Machine) -> None:
    """A run in 8 bits, compiled, learns as one in bf16 does."""
    if machine.device.type == "cuda" and torch.cuda.get_device_capability() < CAPABLE:
        raise NotHere(f"needs compute capability {CAPABLE[0]}.{CAPABLE[1]}")
    last = {}
    for precision in ("bf16", "fp8"):
        state = state_of(machine, {"precision": precision}, compiled=machine.device.type == "cuda")
        batch = batch_of(0, state.config)
        losses = []
        for _ in range(12):
            state.window.zero_()
            train_step(state, batch, scored(batch))
            losses.append(float(state.window[:, 0].sum()) / scored(batch))
        assert losses[-1] < losses[0] - 0.2, losses
        last[precision] = losses[-1]
    assert abs(last["fp8"] - last["bf16"]) < 0.1, last


def compiled(machine: Machine) -> None:
    """Layers, loss, embeddings, angles and norm are compiled without a graph break, and have the gradients of eager ones."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    found = []
    for compile_it in (False, True):
        state = state_of(machine, {"optimizer.grad_clip": None, "data.cross_documents": True}, compile_it)
        batch, kept = batch_of(1, state.config), dict[str, Tensor]()
        parameters = dict(state.model.named_parameters())
        step = state.optimizer.step

        def watched(kept: dict[str, Tensor] = kept, parameters: Any = parameters, step: Any = step) -> None:
            kept.update({name: p.grad.cpu() for name, p in parameters.items()})
            step()

        state.optimizer.step = watched  # type: ignore[method-assign]
        train_step(state, batch, scored(batch))
        found.append(kept)
    assert not counters["graph_break"], dict(counters["graph_break"])
    assert counters["stats"]["unique_graphs"] == 5, dict(counters["stats"])
    for name, gradient in found[0].items():
        error = (found[1][name] - gradient).norm() / gradient.norm()
        assert float(error) < (1e-5 if machine.device.type == "cpu" else 5e-3), (name, float(error))


def experts(machine: Machine) -> None:
    """The grouped product of experts in bf16, which does not wait for the device, equals a loop over them, in value and gradient."""
    if grouped_mm is None:
        raise NotHere("this PyTorch has no grouped_mm")
    generator = torch.Generator().manual_seed(5)
    x, weight = torch.randn(48, 32, generator=generator), torch.randn(4, 64, 32, generator=generator) / 6
    slope, load = torch.randn(48, 64, generator=generator), torch.tensor([20, 0, 27, 1])
    exact = [t.clone().requires_grad_() for t in (x, weight)]
    (one_by_one(exact[0], exact[1], load) * slope).sum().backward()
    here = [machine.moved(t.bfloat16()).requires_grad_() for t in (x, weight)]
    there, bent = machine.moved(load), machine.moved(slope)
    with machine.watched() as waits:
        (grouped(here[0], here[1], there) * bent).sum().backward()
    assert not waits, waits
    for got, want in zip(here, exact, strict=True):
        assert got.grad is not None and want.grad is not None
        error = (got.grad.cpu().float() - want.grad).norm() / want.grad.norm()
        assert float(error) < 2e-2, float(error)


def batches_arrive(machine: Machine) -> None:
    """What the stream of copies sends while the device is busy is whole when it is used, and no memory is used twice."""
    config = config_of({"data.micro_batch": 2, "data.global_batch": 16})
    busy = machine.moved(torch.randn(1024, 1024) if machine.device.type == "cuda" else torch.randn(64, 64))
    sums, wanted = [], []
    for number in range(10):
        batch = batch_of(number, config, rows=16)
        with machine.watched() as waits:
            for _ in range(5):
                busy = (busy @ busy).tanh()
            for part in micro_batches(batch, config, number, machine.device):
                weights = part.inputs["positions"].double() + part.source_id[:, None] + part.scored[:, None]
                sums.append((part.inputs["tokens"] * weights).sum() + part.inputs["labels"].sum())
        assert number < 1 or not waits, waits
        per_row = (batch["labels"] >= 0).sum(1) + batch["source_id"]
        whole = batch["tokens"] * (batch["positions"].double() + per_row[:, None])
        wanted += (whole.sum(1) + batch["labels"].sum(1)).view(-1, 2).sum(1).tolist()
    assert torch.stack(sums).cpu().tolist() == wanted


def two_ranks(machine: Machine) -> None:
    """Two processes on a device each (NCCL; gloo on a CPU) give the losses and weights of one: DDP, ZeRO 1 and 3, tensor, with
    AdamW and Muon, whose matrices are dealt out."""
    if machine.device.type == "cuda" and torch.cuda.device_count() < 2:
        raise NotHere("needs two CUDA devices")
    with_store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.ranks", machine.device.type], cwd=ROOT, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env={**os.environ, **with_store, "RANK": str(n), "LOCAL_RANK": str(n)},
        )
        for n in range(2)
    ]  # fmt: skip
    try:
        printed = [rank.communicate(timeout=300)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(printed)[-2000:]


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


CHECKS: dict[str, Callable[[Machine], None]] = {
    "no waits in a step": no_waits, "found_inf": found_inf, "offloaded optimizer": offloaded_optimizer,
    "variable-length attention": variable_length, "FlexAttention": flexible, "fp8": fp8, "compile": compiled,
    "experts": experts, "batches arrive": batches_arrive, "two ranks": two_ranks,
}  # fmt: skip
# Those that a stand-in cannot run, and a CPU can: torch.compile, process groups, 8-bit kernels.
ON_CPU = ("offloaded optimizer", "fp8", "compile", "two ranks")
