"""The memory of one process, part by part, in bytes; and the smallest layout that fits: fewest GPUs, then least
communication.

Sharding follows ZeRO (Rajbhandari et al. 2020), activations the method of Korthikanti et al. 2022 with the tensors that
autograd, or the compiler, keeps of this decoder. Attention kernels keep no T x T matrix (Dao et al. 2022).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from corpusmill.train.model.flops import Gpu
from corpusmill.train.tools.estimate import options
from corpusmill.train.tools.estimate.layout import NODE, Layout, Shape, Weight, divisors

if TYPE_CHECKING:
    from corpusmill.schemas.optim import OptimizerConfig
    from corpusmill.schemas.outer import OuterConfig
    from corpusmill.schemas.parallel import Checkpointing

MASTER = 4  # bytes of a parameter and of its gradient: float32 in every precision
WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2}  # bytes of what layers compute; fp8 keeps inputs in bf16


class Memory(NamedTuple):
    """Bytes of one process. `buffers`: copies of weights in the type of computation, buckets, gathered units."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float

    @property
    def total(self) -> float:
        return sum(self)


@dataclass(frozen=True)
class Work:
    """The computation of one pass: rows of `length` tokens, precision, checkpointing, and the optimizer.

    `cpu`: by PyTorch's CPU kernels, whose norm and dropout save more, and whose attention saves a mask per layer if it stays
    within documents (`documents`). `compiled`: layers and loss by torch.compile, which computes again what is cheap.
    """

    micro_batch: int
    length: int
    global_batch: int
    optimizer: OptimizerConfig
    precision: str = "bf16"
    checkpointing: Checkpointing = "none"
    budget: float | None = None  # of the checkpointing of that name
    cpu: bool = False
    documents: bool = False
    compiled: bool = False
    outer: OuterConfig | None = None  # of workers that train by themselves

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.length

    @property
    def width(self) -> int:
        return WIDTH[self.precision]


def memory(shape: Shape, layout: Layout, work: Work) -> Memory:
    """The memory of the process that needs most."""
    stages = range(layout.pp)
    return max((of_stage(shape, layout, work, stage) for stage in stages), key=lambda found: found.total)


def of_stage(shape: Shape, layout: Layout, work: Work, stage: int) -> Memory:
    """The memory of each process of a pipeline stage."""
    layers = [*layout.stages(shape)[stage], *range(shape.layers, shape.layers + shape.further)]
    units = [shape.by_layer[layer] for layer in layers] + ends(shape, layout, stage)
    states = _states(shape, units, layout, work)
    kept = sum(layer_activations(shape, layout, work, layer) for layer in layers)
    activations = kept * layout.in_flight(stage, layout.micro_batches(work.global_batch, work.micro_batch))
    part = layout.tp
    per_token = 16.0 + 8.0 * shape.rotated  # ids and labels, cosine and sine of RoPE
    if work.cpu and shape.blockwise and not layout.passing:  # its masks, a byte each, are all layers'
        rows = 1 if work.documents else 1 / work.micro_batch
        per_token += (
            work.length * rows * len({masked(shape, replace(work, documents=False), n) for n in layers})
        )
    if stage and shape.mixes(layers[0]):  # the first layer's values, as the stage before sends them
        per_token += MASTER * shape.width(layers[0], "v") / part
    if stage == 0 and shape.dropout:
        per_token += shape.dim / part  # which are dropped, a byte each
    logits = 0.0
    if stage == layout.pp - 1:
        norm = shape.dim * (8 if work.cpu else 4) + 4
        per_token += (norm + shape.dim * work.width) / part
        logits = of_loss(shape, layout, work)
        sizes = tokens(layout, work), layout.tp, work.width, norm, work.compiled
        more, more_logits = options.of_further(shape, *sizes)
        per_token, logits = per_token + more, logits + more_logits
    if work.checkpointing != "none":
        # During a layer's backward pass all of its activations exist, and the logits no more.
        whole = replace(work, checkpointing="none")
        again = max(layer_activations(shape, layout, whole, layer) for layer in layers)
        activations += max(again - logits, 0.0)
    if layout.passing or (work.cpu and shape.blockwise):
        # In the backward pass of the last layer's attention: what its feed-forward and the loss kept is gone.
        gone = tokens(layout, work) * work.width * _feed_forward(shape, layers[-1]) / part
        blocks = options.of_backward(shape, layout, layers[-1], tokens(layout, work), work.length, work.width)
        states = states._replace(buffers=states.buffers + max(blocks - logits - gone, 0.0))
    return states._replace(activations=activations + per_token * tokens(layout, work), logits=logits)


def tokens(layout: Layout, work: Work) -> int:
    """Tokens of a micro-batch in one process."""
    return work.tokens // layout.cp


def _feed_forward(shape: Shape, layer: int) -> float:
    """What a layer's feed-forward keeps of a token, in numbers."""
    return (4 if shape.width(layer, "gate") else 2) * _hidden(shape, layer)


def _hidden(shape: Shape, layer: int) -> int:
    """Widths of the feed-forwards that compute a token, together."""
    copies = shape.top_k if shape.has_experts(layer) else 1
    return copies * shape.width(layer, "up") + shape.width(layer, "shared.up")


def of_loss(shape: Shape, layout: Layout, work: Work) -> float:
    """Bytes of the logits at the highest moment of the loss, and of what exists beside them.

    Whole: log-softmax, its gradient, and the gradient of the cross entropy, in float32; compiled, one tensor. In chunks, or
    divided by tensor parallelism, which is not compiled: the logits, the same in float32, their probabilities (on a CPU in place
    of the logits; compiled not at all); and the gradient of the head, in float32 and as a chunk's product.
    """
    columns = shape.vocab / layout.tp
    count = tokens(layout, work)
    rows = min(count, shape.loss_chunk or count)
    more = MASTER if shape.softcap else 0  # of each logit: tanh, or the derivative
    if rows == count and layout.tp == 1:
        return rows * columns * (work.width if work.compiled else 3 * MASTER + more)
    low = 0 if work.width == MASTER else work.width
    probabilities = 0 if work.cpu or (work.compiled and layout.tp == 1) else MASTER
    return columns * (rows * (low + MASTER + more + probabilities) + shape.dim * (MASTER + work.width))


def ends(shape: Shape, layout: Layout, stage: int) -> list[list[Weight]]:
    """Weights outside of the layers: embeddings on the first stage; norm and head (or the tied embedding) on the last."""
    outside = shape.by_layer[None]
    embeddings = [w for w in outside if w.kind == "embeddings"]
    rest = [w for w in outside if w.kind != "embeddings"]
    found: list[list[Weight]] = []
    if stage == 0:
        found.append(embeddings)
    if stage == layout.pp - 1:
        copy = [w for w in embeddings if w.name == "embedding.weight"] if shape.tied and layout.pp > 1 else []
        found.append(rest + copy)
    return found


def _states(shape: Shape, units: list[list[Weight]], layout: Layout, work: Work) -> Memory:
    """Parameters, gradients, optimizer states and the buffers that go with them."""
    parameters = gradients = optimizer = buffers = 0.0
    for unit in units:
        for weight in unit:
            here = local(weight, layout)
            owners = layout.sharing // (layout.replicate * (layout.ep if weight.expert else 1))
            shard = [1 if layout.zero < stage else owners for stage in (1, 2, 3)]
            # With FSDP2 any stage from 1 on shards the master parameters; 1 and 2 keep a gathered copy beside them.
            parameters += MASTER * here / shard[0]
            gradients += MASTER * here / shard[1]
            optimizer += state_bytes(weight, work.optimizer) * here / weight.numel / shard[0]
            if (
                work.outer is not None
            ):  # the weights in common, and the momentum; what is sent, and what arrives
                optimizer += 2 * MASTER * here
                buffers += 2 * MASTER * here / work.outer.fragments
            if layout.zero in (1, 2):
                buffers += work.width * here
            elif layout.zero == 0:
                # autocast casts each weight of a product; gradients are views of DistributedDataParallel's buckets
                cast = weight.product or (shape.tied and weight.name == "embedding.weight")
                buffers += work.width * here if cast and work.width < MASTER else 0
    sizes = sorted((sum(local(weight, layout) for weight in unit) for unit in units), reverse=True)
    if layout.zero == 3:
        buffers += work.width * sum(sizes[:2])  # one unit computes, the next is gathered
    if layout.zero >= 2:
        buffers += (work.width + MASTER) * sizes[0]  # a unit's gradients, and what is scattered of them
    return Memory(parameters, gradients, optimizer, 0.0, 0.0, buffers)


def local(weight: Weight, layout: Layout) -> float:
    """Elements of a weight that a process computes with."""
    return weight.numel / weight.parts(layout.tp, layout.ep)


def state_bytes(weight: Weight, config: OptimizerConfig) -> int:
    """What an optimizer keeps of a parameter: exactly the tensors that `corpusmill.train.optim` makes."""
    for option in ("ema", "hypergradient"):  # a copy of the weights each
        if getattr(config, option) is not None:
            return 4 * weight.numel + state_bytes(weight, config.model_copy(update={option: None}))
    n, step = weight.numel, 4
    if config.kind == "adafactor" and len(weight.shape) > 1:
        return 4 * (n // weight.shape[-1] + n // weight.shape[-2]) + step
    if config.kind == "adafactor":
        return 4 * n + step
    if config.kind == "lion" or (config.kind == "muon" and weight.kind == "matrices"):
        return 4 * n
    if config.kind == "sgd":
        return 4 * n if config.momentum else 0
    if config.state_bits == 8 and n >= 4096 and n % 256 == 0:  # codes, a scale for 256 of them, 256 values
        return 2 * (n + 4 * n // 256 + 4 * 256) + step
    return 8 * n + step


def masked(shape: Shape, work: Work, layer: int) -> bool:
    """Whether a layer's attention has a mask, not the causal one alone."""
    return work.documents or shape.windows.get(layer, work.length) < work.length


def layer_activations(shape: Shape, layout: Layout, work: Work, layer: int) -> float:
    """What a layer keeps of one micro-batch for its backward.

    C the residual stream (float32), e bytes of what layers compute. Norms keep their input (and 1 / RMS); products
    their input, which autocast casts once for each product; attention q, k, v, its output and a float for each head;
    SwiGLU its two inputs, the activated one and their product. With context parallelism k and v are those of whole
    sequences, but in a ring. Tensor parallelism divides what lies between the
    column- and the row-wise product, sequence parallelism the rest (Korthikanti et al. 2022, table 2).

    Compiled, what is no product and no attention is computed again: kept are the streams, what the norms put out, and of
    the feed-forward the inputs of its products and of its activation.

    `full` keeps the layer's input. `selective` keeps that and the outputs of matrix products and of attention,
    `budget` that share of what `none` keeps, but no less than `full`.
    """
    if work.checkpointing == "budget":
        kinds: tuple[Checkpointing, ...] = ("none", "full")
        most, least = (
            layer_activations(shape, layout, replace(work, checkpointing=kind), layer) for kind in kinds
        )
        return max(least, (work.budget or 0.0) * most)
    e, dim = work.width, shape.dim
    mla = shape.mla
    q, kv = (0, 0) if mla else (shape.width(layer, "q"), shape.width(layer, "k"))
    ring = layout.passing
    whole = 1 if ring else layout.cp  # of how many processes' keys
    copies = shape.top_k if shape.has_experts(layer) else 1  # a token is computed by so many feed-forwards
    gated = bool(shape.width(layer, "gate"))
    hidden = _hidden(shape, layer)
    stream = 4.0 * dim
    heads = 4.0 * shape.heads
    if work.checkpointing == "full":
        outer, inner = stream, 0.0
    elif work.checkpointing == "selective":
        outer = (
            stream + (1 if work.compiled else 2) * e * dim
        )  # the compiler sees that the last output is in no gradient
        inner = e * (2 * q + 2 * kv + (1 + gated) * hidden) + heads
        inner += options.of_products(mla, shape.heads, e) if mla else 0
    elif work.compiled:
        outer = 2 * (stream + e * dim)
        inner = e * (2 * q + 2 * kv * whole + (2 + gated) * hidden) + heads
    else:
        norm = stream + 4 + (stream if work.cpu else 0)
        # Tensor parallelism gathers one for all products, but those before latent vectors.
        casts = 1 if e == 4 else 2 if mla else 1 if layout.tp > 1 else 3
        ffn_casts = 1 if e == 4 or layout.tp > 1 or not gated else 2
        outer = 2 * norm + e * dim * (casts + ffn_casts)
        inner = e * (2 * q + 2 * kv * whole + (4 if gated else 2) * hidden) + heads
        if work.cpu and not ring and not shape.blockwise and (layout.cp > 1 or masked(shape, work, layer)):
            rows = 1 if work.documents else 1 / work.micro_batch  # without documents, one for all
            inner += e * work.length * rows * layout.tp  # the mask is not cut
    if work.checkpointing not in ("full", "selective"):
        if mla:
            inner += options.of_passes(mla, shape.heads, e, work.compiled, work.cpu, layout.tp, whole)
        if shape.normed(layer):  # queries and keys; autocast makes a float32 copy for the norm
            inner += (e if work.compiled else 2 * MASTER if work.cpu else MASTER) * (q + kv)
            inner += e * q if work.cpu and not ring else 0  # as measured
        if shape.dropout:
            outer += 2 * dim
        if shape.width(layer, "value_embedding"):  # the vectors that were looked up
            inner += MASTER * kv
        if shape.mixes(layer):  # the values before
            inner += e * kv
        if shape.has_experts(layer):  # scores of the router; inputs sent to experts, outputs that come back
            outer += 8.0 * shape.width(layer, "router") + 2 * copies * e * dim
    return tokens(layout, work) * (outer + inner) / layout.tp


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
    """Every way to lay a model out on exactly `count` GPUs, tensor parallelism within a node, sequences cut as in `like`."""
    for tp in divisors(count):
        for pp in divisors(count // tp):
            dp, left = divmod(count // (tp * pp), like.cp)
            if left or not dp:
                continue
            for ep in divisors(dp) if shape.experts else [1]:
                for zero in range(4 if dp * like.cp > 1 else 1):
                    layout = replace(like, dp=dp, tp=tp, pp=pp, ep=ep, zero=zero)
                    sizes = shape, work.length, work.global_batch, work.micro_batch
                    if tp <= NODE and layout.refusal(*sizes) is None:
                        yield layout


def sent(shape: Shape, layout: Layout, work: Work) -> float:
    """Bytes that a process sends in a step, the network's speed left aside.

    dp: gradients reduced and parameters gathered, 2 x parameters up to stage 2; stage 3 gathers twice for each
    micro-batch (ZeRO, section 7). tp: 4 all-reduces of the residual stream a layer and micro-batch (Shoeybi et al.
    2019; as much with sequence parallelism), and what is gathered again in the backward pass, half of one for each half of a layer. pp: the stream, there and back. ep: it goes out and comes back twice.
    cp: keys and values are gathered, their gradients scattered; in a ring they pass twice, and float32 gradients once.
    """
    rounds = layout.micro_batches(work.global_batch, work.micro_batch)
    stream = tokens(layout, work) * shape.dim * work.width
    per_stage = max(len(layers) for layers in layout.stages(shape))
    total = 0.0
    for weight in shape.weights:
        owners = layout.sharing // (layout.ep if weight.expert else 1)
        here = local(weight, layout) / (layout.pp if weight.layer is not None else 1)
        gathered = {0: 4, 1: work.width, 2: work.width, 3: 2 * work.width * rounds}[layout.zero]
        reduced = 4 * (rounds if layout.zero >= 2 else 1)
        total += here * (gathered + reduced) * (owners - 1) / owners
    total += 5 * 2 * (layout.tp - 1) / layout.tp * stream * per_stage * rounds
    total += 2 * stream / layout.tp * rounds if layout.pp > 1 else 0
    total += rounds * sum(
        gathered_context(shape, layout, work, layer) for layer in layers_of_stage(shape, layout)
    )
    experts = sum(shape.has_experts(layer) for layer in range(shape.layers)) / layout.pp
    total += 4 * (layout.ep - 1) / layout.ep * stream * shape.top_k * experts * rounds
    return total


def gathered_context(shape: Shape, layout: Layout, work: Work, layer: int) -> float:
    """Bytes that a process sends of a micro-batch in a layer, forward and backward, so that all have the keys and values of all."""
    ring = layout.passing
    own = 2 * shape.width(layer, "k") / layout.tp
    if shape.mla:
        own = options.passed(shape.mla, shape.heads) / layout.tp if ring else shape.mla.kept
    numbers = tokens(layout, work) * own
    sums = MASTER * layout.cp * numbers if ring else 0
    return 2 * (layout.cp - 1) * numbers * work.width + sums


def layers_of_stage(shape: Shape, layout: Layout) -> list[int]:
    """The layers of a stage that has most."""
    return max(layout.stages(shape), key=len)
