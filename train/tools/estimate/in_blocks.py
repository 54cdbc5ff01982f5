"""What attention needs while its weights exist, where they do: computed in blocks (`corpusmill.train.model.blockwise`) on a CPU, and on every
device where keys and values pass by (`corpusmill.train.parallel.ring`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.train.model.blockwise import WEIGHTS
from corpusmill.train.tools.estimate.latent import passed

if TYPE_CHECKING:
    from corpusmill.train.tools.estimate.layout import Layout, Shape

FULL = 4  # bytes of a float32


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
