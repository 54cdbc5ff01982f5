"""The memory of layers for tokens after the next (`corpusmill.train.model.mtp`) beside what every layer keeps."""

from __future__ import annotations

from corpusmill.train.tools.estimate.layout import Shape

FULL = 4  # bytes of a float32


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
