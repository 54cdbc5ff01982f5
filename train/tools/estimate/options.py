"""What options of a model add to the memory of a layer: multi-head latent attention (`corpusmill.train.model.mla`), layers for tokens after the
next (`corpusmill.train.model.mtp`), and attention whose weights exist while it is computed: in blocks (`corpusmill.train.model.blockwise`) on a
CPU, and on every device where keys and values pass by (`corpusmill.train.parallel.ring`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.train.model.blockwise import WEIGHTS

if TYPE_CHECKING:
    from corpusmill.schemas.latent import MLAConfig
    from corpusmill.train.tools.estimate.layout import Layout, Shape

FULL = 4  # bytes of a float32


def of_products(mla: MLAConfig, heads: int, e: int) -> float:
    """Bytes of a token: what its matrix products before the last one and its attention give, of `e` bytes a number."""
    values = heads * (mla.nope_head_dim + mla.value_head_dim)
    return e * ((mla.q_rank or 0) + mla.kept + values + 2 * heads * mla.head_size)


def of_passes(
    mla: MLAConfig, heads: int, e: int, compiled: bool, cpu: bool, tensor: int, context: int
) -> float:
    """Bytes of a token that all processes of tensor parallelism keep together.

    Of queries, keys and values kernels keep as many numbers, the last ones zeros, and of the result too, from which the product
    behind it takes its own. Latent vectors are kept before and behind their norm, by a CPU between its two operations too; those
    of whole sequences by each process that gathers them.
    """
    padded = mla.value_head_dim < mla.head_size
    values = mla.head_size if padded else mla.nope_head_dim + mla.value_head_dim
    result = mla.head_size + (mla.value_head_dim if padded else 0)
    kernel = e * heads * (mla.head_size + result + context * (mla.head_size + values))
    gathered = mla.kept * tensor * context if tensor * context > 1 else mla.kv_rank
    low = e * (gathered + (mla.q_rank or 0))
    ranks = [(mla.kv_rank, mla.rope_head_dim), *([(mla.q_rank, 0)] if mla.q_rank else [])]
    return kernel + low + sum(_norm(rank, beside, e, compiled, cpu) for rank, beside in ranks)


def passed(mla: MLAConfig, heads: int) -> int:
    """Numbers of a position that go around in a ring: keys, and values as long as they are."""
    return 2 * heads * mla.head_size


def _norm(rank: int, beside: int, e: int, compiled: bool, cpu: bool) -> float:
    """Of the norm of vectors of `rank` numbers, in memory with `beside` others; autocast makes a float32 copy of them."""
    if compiled:
        return e * (rank + beside)
    given = e * (rank + beside) if e == FULL else FULL * rank
    return given + FULL + (FULL * rank if cpu else 0)


def of_further(
    shape: Shape, count: int, tensor: int, width: int, norm: float, compiled: bool
) -> tuple[float, float]:
    """What all depths keep, in a process of `tensor` and a micro-batch of `count` tokens: bytes of a token, and of the logits.

    Of a token the inputs of three norms, `norm` bytes each, and of two products in `width` bytes; in float32 a stream is kept once
    for two of them. Of the logits log-softmax, or the gradients that were computed ahead.
    """
    own = 3 * norm + 3 * shape.dim * width - (FULL * shape.dim if width == FULL else 0)
    if min(count, shape.loss_chunk or count) == count and tensor == 1:
        logits = count * shape.vocab * (width if compiled else FULL * (2 if shape.softcap else 1))
    else:
        logits = shape.dim * (count * width + shape.vocab // tensor * FULL)
    return shape.further * own / tensor, float(shape.further * logits)


def of_backward(shape: Shape, layout: Layout, layer: int, count: int, length: int, width: int) -> float:
    """Bytes at once in the backward pass of a layer's attention, for `count` tokens in sequences of `length`, in numbers of `width` bytes."""
    keys = length / layout.cp if layout.passing else length
    weights = min(WEIGHTS, count * shape.heads / layout.tp * keys)
    blocks = weights * (3 * FULL + (width if width < FULL else 0))
    return blocks + (travelling(shape, layout, layer, count, width) if layout.passing else 0.0)


def travelling(shape: Shape, layout: Layout, layer: int, count: int, width: int) -> float:
    """Bytes that exist while keys and values come by in the backward pass: theirs, and the next process's; their gradients, of a part
    and summed in float32, on the way out and on the way in; the queries' in float32."""
    q, kv = shape.width(layer, "q"), 2 * shape.width(layer, "k")
    if shape.mla:
        q, kv = shape.heads * shape.mla.head_size, passed(shape.mla, shape.heads)
    return ((3 * kv + q) * width + (2 * kv + q) * FULL) * count / layout.tp
