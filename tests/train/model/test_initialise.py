"""First values: any slice made alone is that slice of the whole, and the whole is normal."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model import initialise
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.initialise import STD, first_values, normal_slice

SHAPES = [(7,), (23, 14), (5, 9, 11), (3, 1, 4, 6)]


@pytest.mark.parametrize("shape", SHAPES)
def test_any_slice_is_that_slice_of_the_whole(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = normal_slice(shape, tuple(slice(None) for _ in shape), 42)
    assert whole.shape == shape and len(whole.unique()) == whole.numel()
    monkeypatch.setattr(initialise, "CHUNK", 13)  # slices that are made in several goes
    assert torch.equal(normal_slice(shape, tuple(slice(None) for _ in shape), 42), whole)
    draw = random.Random(1)
    for _ in range(60):
        ends = [sorted(draw.choices(range(size + 1), k=2)) for size in shape]
        slices = tuple(slice(low, high, draw.randint(1, 3)) for low, high in ends)
        assert torch.equal(normal_slice(shape, slices, 42), whole[slices]), slices


def test_the_numbers_are_those_of_the_formula() -> None:
    """Python's integers, which do not wrap by themselves."""
    full = 2**64 - 1

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & full
        x = (x ^ x >> 27) * 0x94D049BB133111EB & full
        return x ^ x >> 31

    key = 2**62 + 12345
    found = normal_slice((50, 40), (slice(None), slice(None)), key, 0.5).flatten().tolist()
    for i in (0, 1, 2, 999, 1999):
        bits = mix(mix((i * 0x9E3779B97F4A7C15 + key) & full) ^ key)
        first, second = ((bits >> 32) + 0.5) / 2**32, (bits & 0xFFFFFFFF) / 2**32
        wanted = math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second) * 0.5
        assert found[i] == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("key", [0, 1, 2**63 - 1])
def test_they_are_normal_and_do_not_hang_together(key: int) -> None:
    n = 400_000
    x = normal_slice((n,), (slice(None),), key).double().numpy()
    # four deviations of each moment's own spread
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - mean) < 4 * math.sqrt(variance / n), power
    ordered, place = np.sort(x), (np.arange(n) + 0.5) / n
    below = 0.5 * (1 + torch.erf(torch.from_numpy(ordered) / math.sqrt(2)).numpy())
    assert np.abs(below - place).max() < 1.95 / math.sqrt(n)  # Kolmogorov and Smirnov, 0.1 %
    for lag in (1, 2, 3, 64, 1000):
        for y in (x, x**2 - 1, np.sign(x)):
            assert abs((y[:-lag] * y[lag:]).mean() / y.var()) < 4.5 / math.sqrt(n), lag
    other = normal_slice((n,), (slice(None),), key ^ 1).double().numpy()
    assert abs((x * other).mean()) < 4.5 / math.sqrt(n)


def test_norms_biases_and_what_writes_into_the_residual_stream() -> None:
    config = ModelConfig(
        preset="gpt2", dim=64, layers=2, heads=4, max_positions=50,
        moe={"experts": 4, "shared_experts": 1, "first": 1},
    )  # fmt: skip
    model = Decoder(config, 90, seed=5)
    for name, value in model.named_parameters():
        if name.endswith("norm.weight"):
            assert (value == 1).all(), name
        elif value.ndim == 1:
            assert name.endswith("bias") and (value == 0).all(), name
        else:
            narrow = "down" in name or name.endswith("attention.o.weight")
            wanted = STD / 2 if narrow else STD
            rows = value[:90] if name == "embedding.weight" else value
            assert abs(float(rows.detach().std()) / wanted - 1) < 6 / math.sqrt(2 * rows.numel()), name
    assert (model.embedding.weight[90:] == 0).all() and (model.embedding.weight[:90] != 0).all()


def test_a_part_of_a_parameter_is_made_without_the_model() -> None:
    model = Decoder(ModelConfig(dim=32, layers=2, heads=4, tie_embeddings=False, moe={"experts": 4}), 50, 3)
    for name, value in model.named_parameters():
        part = tuple(slice(size // 2, None) for size in value.shape)
        assert torch.equal(first_values(name, value.shape, part, 3, 2, 50), value[part]), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_makes_the_same_numbers() -> None:
    shape, slices = (300, 200), (slice(10, 290), slice(0, 200, 2))
    here, there = (normal_slice(shape, slices, 7, device=device) for device in ("cpu", "cuda"))
    torch.testing.assert_close(there.cpu(), here, atol=1e-6, rtol=1e-6)
