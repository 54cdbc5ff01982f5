"""How long a step takes in a layout, and the fastest layouts of so many GPUs.

A model of a few terms, to compare layouts with (Narayanan et al. 2021, section 3): computation at a share of the peak, the
pipeline's bubble, and communication that computation does not hide. What is assumed: ranks are placed as the trainer places
them, tensor parallelism innermost and the pipeline outermost, `NODE` GPUs on one fast network; of tensor parallelism's four
all-reduces of a layer three are waited for, the rest travels during products; all-to-alls of experts, what a
pipeline sends, and keys and values that are gathered (context) are waited for; gradients and gathered parameters travel during the backward pass, with ZeRO 3 during all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import NamedTuple

from corpusmill.train.model.flops import Gpu, flops_per_token, recomputed_per_token
from corpusmill.train.tools.estimate.layout import LOOPED, NODE, Layout, Shape, divisors
from corpusmill.train.tools.estimate.memory import (
    Memory,
    Work,
    fits,
    gathered_context,
    layers_of_stage,
    memory,
)

LAUNCH = 1e-4  # seconds a layer and micro-batch for what is no product: norms, activations, kernels that are launched
LATENCY = 2e-5  # seconds of a collective, whatever its size
LARGEST = 64  # sequences of a micro-batch, at most
ZERO_BUBBLE = (
    1 / 3
)  # of the bubble of 1F1B: a pass of weights' gradients fills the rest (Qi et al. 2024, ZB-H1)


class Seconds(NamedTuple):
    """Of one step, by what the processes wait for."""

    compute: float
    bubble: float
    tensor: float
    data: float
    pipeline: float
    experts: float
    context: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)


class Option(NamedTuple):
    """A layout and a micro-batch, with what they take."""

    layout: Layout
    micro_batch: int
    seconds: Seconds
    memory: Memory


class Timing:
    """Steps of a model on a GPU; `mfu`: the share of its peak that computation alone reaches, `network`: bytes per second that
    a GPU sends to other nodes."""

    def __init__(self, shape: Shape, work: Work, gpu: Gpu, mfu: float, network: float | None = None) -> None:
        self.shape, self.work, self.gpu, self.mfu = shape, work, gpu, mfu
        self.network = network or gpu.network
        self.flops = flops_per_token(
            shape.sizes, work.length, shape.top_k, shape.causal, windows=shape.windows
        )
        if work.checkpointing == "full":
            self.flops += recomputed_per_token(
                shape.sizes, work.length, shape.top_k, shape.causal, shape.windows
            )
        # Weights that are divided alike, added up: (elements, axes, whether they are experts', whether in a layer).
        sums: dict[tuple[tuple[str, ...], bool, bool], int] = {}
        for weight in shape.weights:
            kind = (tuple(axis for axis, _ in weight.splits), weight.expert, weight.layer is not None)
            sums[kind] = sums.get(kind, 0) + weight.numel
        self._weights = [(numel, *kind) for kind, numel in sums.items()]
        self._with_experts = sum(shape.has_experts(layer) for layer in range(shape.layers))

    def step(self, layout: Layout, micro_batch: int) -> Seconds:
        """A step of the whole global batch."""
        work, shape, gpu = self.work, self.shape, self.gpu
        rounds = layout.micro_batches(work.global_batch, micro_batch)
        layers = -(-shape.layers // layout.pp) + shape.further
        tokens = work.global_batch * work.length
        compute = self.flops * tokens / (layout.processes * gpu.peak * self.mfu) + LAUNCH * layers * rounds
        bubble = (layout.pp - 1) / rounds * compute
        if layout.schedule == "interleaved":
            bubble /= layout.chunks
        elif layout.schedule == "zero_bubble":
            bubble *= ZERO_BUBBLE
        stream = micro_batch * work.length / layout.cp * shape.dim * work.width  # bytes
        tensor = pipeline = experts = context = 0.0
        if layout.cp > 1:
            mine = replace(work, micro_batch=micro_batch)
            sent = sum(
                gathered_context(shape, layout, mine, layer) for layer in layers_of_stage(shape, layout)
            )
            times = 3 * layout.cp - 2 if layout.passing else 2
            context = (sent / self._speed(layout.cp * layout.tp) + times * LATENCY * layers) * rounds
        if layout.tp > 1:
            sent = 3 * 2 * (layout.tp - 1) / layout.tp * stream
            tensor = (sent / gpu.link + 3 * LATENCY) * layers * rounds
        if layout.pp > 1:
            pieces = layout.pieces / layout.pp
            pipeline = 2 * (stream / layout.tp / self._speed(layout.processes) + LATENCY) * pieces * rounds
        if layout.ep > 1:
            sent = 4 * (layout.ep - 1) / layout.ep * stream / layout.tp * shape.top_k
            each = sent / self._speed(layout.ep * layout.tp) + 4 * LATENCY
            experts = each * self._with_experts / layout.pp * rounds
        return Seconds(
            compute, bubble, tensor, self._data(layout, rounds, compute), pipeline, experts, context
        )

    def _data(self, layout: Layout, rounds: int, compute: float) -> float:
        """What is waited for of gradients and gathered parameters."""
        if layout.sharing == 1:
            return 0.0
        counts = {"tensor": layout.tp, "expert": layout.ep}
        gathered = {0: 4, 1: self.work.width, 2: self.work.width, 3: 2 * self.work.width * rounds}[
            layout.zero
        ]
        reduced = 4 * (rounds if layout.zero >= 2 else 1)
        sent = 0.0
        for numel, axes, expert, inside in self._weights:
            owners = layout.sharing // (layout.ep if expert else 1)
            here = numel / prod(counts[axis] for axis in axes) / (layout.pp if inside else 1)
            sent += here * (gathered + reduced) * (owners - 1) / owners
        hidden = {0: 2 / 3 / rounds, 1: 2 / 3 / rounds, 2: 2 / 3, 3: 1.0}[layout.zero] * compute
        collectives = (2 * -(-self.shape.layers // layout.pp)) * (rounds if layout.zero >= 2 else 1)
        return max(sent / self._speed(layout.sharing * layout.tp) - hidden, 0.0) + LATENCY * collectives

    def _speed(self, span: int) -> float:
        """Bytes per second between processes that lie within `span` neighbours."""
        return self.gpu.link if span <= NODE else self.network


def fastest(timing: Timing, like: Layout, headroom: float, count: int, keep: int = 4) -> list[Option]:
    """The fastest options that fit, on all of `count` GPUs, or on the most of them that batch and model can be divided among.

    `like` gives the pipeline's schedule and into how many parts sequences are cut. All micro-batches that divide the batch are tried.
    """
    for _, group in groupby(_sizes(timing, like, count), key=lambda size: prod(size)):
        options = [
            (timing.step(layout, micro_batch), layout, micro_batch)
            for size in group
            for layout, micro_batch in _options(timing, like, *size)
        ]
        found: list[Option] = []
        for seconds, layout, micro_batch in sorted(
            options, key=lambda one: (one[0].total, one[1].zero, str(one[1]))
        ):
            if any(option.layout == layout for option in found):
                continue  # with another micro-batch
            need = memory(timing.shape, layout, replace(timing.work, micro_batch=micro_batch))
            if fits(need, timing.gpu, headroom):
                found.append(Option(layout, micro_batch, seconds, need))
            if len(found) == keep:
                break
        if found:
            return found
    return []


def _sizes(timing: Timing, like: Layout, count: int) -> list[tuple[int, int, int]]:
    """(dp, tp, pp) that model and batch can be divided by, on `count` GPUs at most; most first."""
    shape, batch = timing.shape, timing.work.global_batch
    chunks = like.chunks if like.schedule in LOOPED else 1
    stages = [pp for pp in range(1, shape.layers + 1) if pp == 1 or pp * chunks <= shape.layers]
    found = [
        (dp, tp, pp)
        for dp in divisors(batch)
        for tp in range(1, NODE + 1)
        for pp in stages
        if dp * tp * pp * like.cp <= count and pp <= batch // dp and dp % like.replicate == 0
    ]
    return sorted(found, key=lambda size: (-prod(size), size))


def _options(timing: Timing, like: Layout, dp: int, tp: int, pp: int) -> Iterator[tuple[Layout, int]]:
    shape, work = timing.shape, timing.work
    rows = work.global_batch // dp
    for ep in divisors(dp) if shape.experts else [1]:
        for zero in range(4 if dp * like.cp > 1 else 1):
            layout = replace(like, dp=dp, tp=tp, pp=pp, ep=ep, zero=zero)
            for micro_batch in divisors(rows):
                if micro_batch > LARGEST:
                    break
                if layout.refusal(shape, work.length, work.global_batch, micro_batch) is None:
                    yield layout, micro_batch
