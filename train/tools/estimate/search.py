"""The smallest layout that fits: fewest GPUs, then least communication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from corpusmill.train.model.flops import Gpu
from corpusmill.train.tools.estimate.layout import NODE, Layout
from corpusmill.train.tools.estimate.memory import Memory, Work, local, memory
from corpusmill.train.tools.estimate.shape import Shape

MOST = 4096  # GPUs


class Found(NamedTuple):
    """A layout that is possible, with what it takes."""

    layout: Layout
    memory: Memory
    sent: float  # bytes that a process sends in a step


class Answer(NamedTuple):
    """The best layout, if any fits; of each smaller number of GPUs, the one that came nearest; others that fit."""

    best: Found | None
    nearest: list[Found]
    others: list[Found]


def smallest(shape: Shape, work: Work, gpu: Gpu, like: Layout, headroom: float, most: int = MOST) -> Answer:
    """Of 1, 2, 4, 8, ... up to `most` GPUs. `like` gives the pipeline's schedule and whether sequences are cut."""
    nearest: list[Found] = []
    count = 1
    while count <= most:
        found = [
            Found(layout, memory(shape, layout, work), sent(shape, layout, work))
            for layout in layouts(shape, work, like, count)
        ]
        fit = sorted(
            (option for option in found if fits(option.memory, gpu, headroom)),
            key=lambda option: (option.sent, option.layout.zero),
        )
        if fit:
            return Answer(fit[0], nearest, fit[1:])
        if found:
            nearest.append(min(found, key=lambda option: option.memory.total))
        count *= 2
    return Answer(None, nearest, [])


def fits(need: Memory, gpu: Gpu, headroom: float) -> bool:
    """`headroom` is the share of the GPU left to the CUDA context, communication and fragments."""
    return need.total <= gpu.memory * 2**30 * (1 - headroom)


def layouts(shape: Shape, work: Work, like: Layout, count: int) -> Iterator[Layout]:
    """Every way to lay a model out on exactly `count` GPUs, tensor parallelism within a node."""
    for tp in _divisors(count):
        for pp in _divisors(count // tp):
            dp = count // (tp * pp)
            for ep in _divisors(dp) if shape.experts else [1]:
                for zero in range(4 if dp > 1 else 1):
                    layout = replace(like, dp=dp, tp=tp, pp=pp, ep=ep, zero=zero)
                    sizes = shape, work.length, work.global_batch, work.micro_batch
                    if tp <= NODE and layout.refusal(*sizes) is None:
                        yield layout


def sent(shape: Shape, layout: Layout, work: Work) -> float:
    """Bytes that a process sends in a step, the network's speed left aside.

    dp: gradients reduced and parameters gathered, 2 x parameters up to stage 2; stage 3 gathers twice for each
    micro-batch (ZeRO, section 7). tp: 4 all-reduces of the residual stream a layer and micro-batch (Shoeybi et al.
    2019; as much with sequence parallelism). pp: the stream, there and back. ep: it goes out and comes back twice.
    """
    rounds = layout.micro_batches(work.global_batch, work.micro_batch)
    stream = work.tokens * shape.dim * work.width
    per_stage = max(len(layers) for layers in layout.stages(shape))
    total = 0.0
    for weight in shape.weights:
        owners = layout.dp // (layout.ep if weight.expert else 1)
        here = local(weight, layout) / (layout.pp if weight.layer is not None else 1)
        gathered = {0: 4, 1: work.width, 2: work.width, 3: 2 * work.width * rounds}[layout.zero]
        reduced = 4 * (rounds if layout.zero >= 2 else 1)
        total += here * (gathered + reduced) * (owners - 1) / owners
    total += 4 * 2 * (layout.tp - 1) / layout.tp * stream * per_stage * rounds
    total += 2 * stream / layout.tp * rounds if layout.pp > 1 else 0
    experts = sum(shape.has_experts(layer) for layer in range(shape.layers)) / layout.pp
    total += 4 * (layout.ep - 1) / layout.ep * stream * shape.top_k * experts * rounds
    return total


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
