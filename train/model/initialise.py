"""First values of the parameters, each a pure function of (seed, parameter's name, index): any slice of any parameter can be
computed alone, on any device, so that a model starts from the same weights in every layout."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from corpusmill.train.model.mup import deviation

STD = 0.02
RESIDUAL = ("attention.o.weight", "ffn.down.weight", "ffn.shared.down.weight", "ffn.down")
VOCABULARY = ("embedding.weight", "head.weight")
CHUNK = (
    1 << 16
)  # numbers computed at once on a CPU, so that they stay in its cache; 64 times as many on a GPU


def key(*parts: int | str) -> int:
    """A 63-bit seed from numbers and names."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1


@torch.no_grad()
def initialise(model: nn.Module, seed: int, layers: int, vocab_size: int, width: float = 1.0) -> None:
    """Give every parameter of a whole decoder its `first_values`; the experts' biases become 0."""
    for name, parameter in model.named_parameters():
        shape, whole = parameter.shape, (slice(None),) * parameter.ndim
        parameter.copy_(first_values(name, shape, whole, seed, layers, vocab_size, parameter.device, width))
    for buffer in model.buffers():
        buffer.zero_()


def first_values(
    name: str,
    shape: tuple[int, ...],
    slices: tuple[slice, ...],
    seed: int,
    layers: int,
    vocab_size: int,
    device: torch.device | str = "cpu",
    width: float = 1.0,
) -> Tensor:
    """`slices` of a parameter of `shape`, float32: norms 1, biases and sinks 0, shares of values 0.5; matrices normal with deviation 0.02, those that
    write into the residual stream divided by sqrt(2 x layers) (GPT-2, Radford et al. 2019). Of adapters
    (`corpusmill.train.model.lora`), B is 0, and A uniform within 1 / sqrt(its columns), as in PEFT. In a model `width` times
    wider than the base of muP (Yang et al. 2022) the deviation of hidden matrices is divided by sqrt(width), a router's by width.

    Rows that pad the vocabulary are 0: no text contains them, but they take part in the softmax, where each starts as a
    token of mean likelihood, whatever the other rows are.
    """
    if len(shape) == 1:
        size = len(range(*slices[0].indices(shape[0])))
        value = 0.5 if name.endswith("value_mix") else 0.0 if name.endswith(("bias", "sinks")) else 1.0
        return torch.full((size,), value, device=device)
    if name.endswith(".lora_a"):  # the distribution function of a normal number is uniform
        normal = normal_slice(shape, slices, key("init", seed, name), math.sqrt(0.5), device)
        return torch.erf(normal) / math.sqrt(shape[1])
    std = STD / math.sqrt(2 * layers) if name.endswith(RESIDUAL) else STD
    std = 0.0 if name.endswith(".lora_b") else std
    std = deviation(std, name, width)
    values = normal_slice(shape, slices, key("init", seed, name), std, device)
    if name in VOCABULARY or name.endswith(".value_embedding.weight"):
        rows = torch.arange(*slices[0].indices(shape[0]), device=device)
        values[rows >= vocab_size] = 0.0
    return values


def normal_slice(
    shape: tuple[int, ...],
    slices: tuple[slice, ...],
    key: int,
    std: float = 1.0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """`slices` (of positive step) of a tensor of `shape` of normal numbers, float32; no others are computed.

    Number i in row-major order is Box and Muller's (1958) transform, in float64, of the halves of 64 bits hashed from
    (key, i) by SplitMix64's finaliser (Steele et al. 2014), applied twice. No number exceeds 6.7 deviations.
    """
    ranges = [range(*part.indices(size)) for part, size in zip(slices, shape, strict=True)]
    sizes = [len(places) for places in ranges]
    values = torch.empty(math.prod(sizes), dtype=torch.float32, device=device)
    chunk = CHUNK if values.device.type == "cpu" else 64 * CHUNK
    for start in range(0, len(values), chunk):
        place = torch.arange(start, min(start + chunk, len(values)), device=device)
        if sizes == list(shape):
            index = place
        else:
            index, below, stride = torch.zeros_like(place), 1, 1
            for size, places, whole in zip(reversed(sizes), reversed(ranges), reversed(shape), strict=True):
                index += (place // below % size * places.step + places.start) * stride
                below, stride = below * size, stride * whole
        bits = mix(mix(index * _signed(0x9E3779B97F4A7C15) + key) ^ key)
        first = ((bits >> 32 & 0xFFFFFFFF).double() + 0.5) * 2.0**-32
        second = (bits & 0xFFFFFFFF).double() * (2 * math.pi * 2.0**-32)
        values[start : start + chunk] = (-2 * first.log()).sqrt() * second.cos() * std
    return values.view(sizes)


def mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64, whose products wrap; a shift is masked, since it repeats the sign."""
    x = (x ^ (x >> 30 & (1 << 34) - 1)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> 27 & (1 << 37) - 1)) * _signed(0x94D049BB133111EB)
    return x ^ (x >> 31 & (1 << 33) - 1)


def _signed(bits: int) -> int:
    """The int64 with these 64 bits."""
    return bits - (1 << 64) if bits >> 63 else bits
