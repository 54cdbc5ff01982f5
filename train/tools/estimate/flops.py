"""FLOPs of a token and of a run; time, cost, energy and CO2e that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from corpusmill.train.tools.estimate.gpus import Gpu
from corpusmill.train.tools.estimate.shape import Shape

if TYPE_CHECKING:
    from corpusmill.schemas.precision import Checkpointing


def per_token(shape: Shape, length: int, causal: bool = True) -> float:
    """Of forward and backward: 6 per weight of a matrix product (a tied embedding counts as the head), and 12 x layers
    x width of q x length for attention (PaLM, Chowdhery et al. 2022, appendix B), halved if only what is `causal`
    counts. This is what MFU is measured with."""
    weights = sum(shape.active(weight) for weight in shape.weights)
    weights += shape.vocab * shape.dim if shape.tied else 0
    return 6.0 * weights + 3.0 * _attention(shape, length, causal)


def recomputed(shape: Shape, length: int, checkpointing: Checkpointing, causal: bool = True) -> float:
    """Per token, what checkpointing computes a second time: `full` each layer's forward. `selective` keeps what matrix
    products and attention put out: next to nothing; of a `budget` it is not known."""
    if checkpointing != "full":
        return 0.0
    weights = sum(shape.active(weight) for weight in shape.weights if weight.layer is not None)
    return 2.0 * weights + _attention(shape, length, causal)


def _attention(shape: Shape, length: int, causal: bool) -> float:
    """Of the forward pass: q k and the weighted sum of v, 2 FLOPs for each of their products."""
    widths = sum(shape.width(layer, "q") for layer in range(shape.layers))
    return (2.0 if causal else 4.0) * widths * length


class Bill(NamedTuple):
    """Of a whole run. Cost and CO2e are None where no price or carbon intensity is given."""

    seconds: float
    gpu_hours: float
    kwh: float
    usd: float | None
    kg_co2e: float | None


def bill(
    flops: float, gpu: Gpu, count: int, mfu: float, *, price: float | None = None, carbon: float | None = None,
    pue: float = 1.1,
) -> Bill:  # fmt: skip
    """`flops` of the model on `count` GPUs at a share `mfu` of their peak; `price` in USD a GPU hour, `carbon` in kg CO2e a
    kWh. Energy = GPU hours x TDP x PUE (Patterson et al. 2021), so hosts' CPUs and networks are in the PUE or not at all.
    """
    seconds = flops / (count * gpu.peak * mfu)
    hours = seconds / 3600 * count
    kwh = hours * gpu.watts / 1000 * pue
    return Bill(
        seconds,
        hours,
        kwh,
        None if price is None else hours * price,
        None if carbon is None else kwh * carbon,
    )
