"""What multi-head latent attention keeps for its backward pass (`corpusmill.train.model.mla`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.schemas.latent import MLAConfig

MASTER = 4  # bytes of a float32


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
    given = e * (rank + beside) if e == MASTER else MASTER * rank
    return given + MASTER + (MASTER * rank if cpu else 0)
