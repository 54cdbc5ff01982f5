"""Filters are those of their papers; draws have the distribution that the filters leave, and depend on the request alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from corpusmill.schemas.generation import Sampling
from corpusmill.train.generate.sample import Penalties, choices, descending, drawn, sound, uniform

VOCAB = 50
ALL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
FILTERS: dict[str, dict[str, Any]] = {
    "none": {}, "temperature": {"temperature": 0.6}, "top_k": {"top_k": 7}, "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.1}, "typical": {"typical_p": 0.6},
    "all": {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.9},
}  # fmt: skip


def logits(rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def sampling(**values: Any) -> Sampling:
    return Sampling.model_validate({**ALL, **values})


@pytest.mark.parametrize("size", [1, 2, 1000, 8192])
def test_order_is_that_of_a_stable_sort(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(9, size, generator=generator)
    x[1] = x[1].round()  # ties, and zeros of both signs
    x[2, ::3] = float("-inf")
    x[3, ::2], x[4, ::5] = float("inf"), -0.0
    x[5], x[6] = 0.0, x[6] * 1e-42  # denormal numbers
    x[7] *= 1e38
    before = x.clone()
    found, wanted = descending(x), x.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1]) and torch.equal(x, before)
    assert torch.equal(found[0].signbit(), wanted[0].signbit())


def by_definition(x: torch.Tensor, s: Sampling) -> torch.Tensor:
    """The distribution after the filters, each as its paper defines it, in the order and with the ties of transformers' warpers:
    token by token, in float64."""
    shares = np.exp(x[0].double().numpy() / s.temperature)
    shares /= shares.sum()

    def keep(tokens: Sequence[int]) -> None:
        nonlocal shares
        shares = np.array([share if token in tokens else 0.0 for token, share in enumerate(shares)])
        shares /= shares.sum()

    def fewest(order: Sequence[int], mass: float) -> list[int]:
        chosen: list[int] = []
        while sum(shares[token] for token in chosen) < mass and len(chosen) < len(order):
            chosen.append(order[len(chosen)])
        return chosen

    def likely() -> list[int]:
        return [int(token) for token in np.argsort(-shares, kind="stable") if shares[token] > 0]

    if s.top_k:
        keep(likely()[: s.top_k])
    if s.top_p < 1:
        keep(fewest(likely(), s.top_p))
    if s.min_p > 0:
        keep([token for token in likely() if shares[token] >= s.min_p * shares.max()])
    if s.typical_p < 1:
        entropy = -sum(shares[token] * math.log(shares[token]) for token in likely())
        keep(fewest(sorted(likely(), key=lambda t: abs(-math.log(shares[t]) - entropy)), s.typical_p))
    return torch.from_numpy(shares).float()[None]


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_is_what_its_paper_defines(name: str) -> None:
    s = sampling(**FILTERS[name])
    for seed in range(20):
        x = logits(seed=seed)
        found = choices(x, [s]).dense(VOCAB)
        torch.testing.assert_close(found, by_definition(x, s), atol=1e-6, rtol=1e-5)


def test_rows_have_filters_of_their_own() -> None:
    settings = [sampling(**values) for values in FILTERS.values()] + [sampling(temperature=0)]
    x = logits(len(settings))
    together = choices(x, settings).dense(VOCAB)
    for row, s in enumerate(settings):
        alone = choices(x[row : row + 1], [s]).dense(VOCAB)
        torch.testing.assert_close(together[row], alone[0], atol=1e-6, rtol=1e-5)
    assert int(together[-1].argmax()) == int(x[-1].argmax()) and float(together[-1].max()) == 1.0


@pytest.mark.parametrize("name", FILTERS)
def test_draws_have_the_filtered_distribution(name: str) -> None:
    s, count = sampling(**FILTERS[name]), 100_000
    shares = by_definition(logits(), s)[0].double().numpy()
    found = choices(logits().expand(1000, -1), [s] * 1000)
    tokens = [found.draw([uniform(7, n, step) for n in range(1000)]) for step in range(count // 1000)]
    seen = np.bincount(torch.cat(tokens).numpy(), minlength=VOCAB)
    assert (seen[shares == 0] == 0).all()
    likely = shares * count >= 5
    wanted = np.append(shares[likely], shares[~likely].sum())
    counted = np.append(seen[likely], seen[~likely].sum())
    if wanted[-1] == 0:
        wanted, counted = wanted[:-1], counted[:-1]
    assert stats.chisquare(counted, wanted / wanted.sum() * count).pvalue > 0.001


def test_the_last_share_is_drawn_and_a_share_of_0_never_is() -> None:
    shares = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]])
    assert [int(drawn(shares, [u])[0]) for u in (0.0, 0.2499, 0.25, 0.9999999999)] == [1, 1, 3, 3]


@pytest.mark.parametrize(
    "values",
    [{"top_p": 1e-50}, {"typical_p": 1e-50}, {"temperature": 1e-50}, {"top_p": 1e-50, "typical_p": 1e-50, "min_p": 1 - 1e-16}],
    ids=str,
)  # fmt: skip
def test_what_float32_rounds_to_0_leaves_one_token(values: dict[str, Any]) -> None:
    """In a row of its own, and beside rows that keep more."""
    for settings in ([sampling(**values)], [sampling(**values), sampling(top_p=0.9, typical_p=0.9)]):
        found = choices(logits(len(settings)), settings).dense(VOCAB)
        assert torch.isfinite(found).all() and int((found[0] > 0).sum()) == 1
        torch.testing.assert_close(found.sum(-1), torch.ones(len(settings)))


def test_no_token_beyond_the_vocabulary_is_drawn() -> None:
    shares = torch.full((2, 3), float("nan"))
    assert drawn(shares, [0.0, 0.999]).tolist() == [2, 2]
    assert sound(torch.tensor([[1.0, -math.inf], [-math.inf, -math.inf], [math.nan, 0.0], [math.inf, 0.0]])) == [
        True, False, False, False,
    ]  # fmt: skip


def test_of_equal_logits_the_first_is_the_likeliest() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    for others in ([], [sampling()]):
        settings = [sampling(temperature=0), *others]
        assert int(choices(x.expand(len(settings), -1), settings).draw([0.5] * len(settings))[0]) == 1


def test_numbers_are_uniform_and_of_their_words_alone() -> None:
    found = np.array(
        [uniform(*words) for words in itertools.product(range(5), range(10), range(100), range(4))]
    )
    assert len(set(found)) == len(found) == 20_000
    assert stats.kstest(found, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.03
    assert uniform(1, 2, 3) == uniform(1, 2, 3) != uniform(1, 3, 2)


def test_penalties() -> None:
    x = torch.tensor([2.0, -2.0, 1.0, 0.5])
    given = sampling(repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    assert Penalties.needed(given) and not Penalties.needed(sampling())
    penalties = Penalties(given, [0, 1], 4, torch.device("cpu"))
    assert penalties.apply(x).tolist() == [1.0, -4.0, 1.0, 0.5]  # of the prompt: repetition alone
    penalties.add(2)
    penalties.add(2)
    assert penalties.apply(x).tolist() == [1.0, -4.0, 0.5 - 0.5 - 0.5, 0.5]
    assert x.tolist() == [2.0, -2.0, 1.0, 0.5]
