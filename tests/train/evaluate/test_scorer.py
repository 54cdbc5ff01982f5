"""The scorer's log-probabilities are those of each query alone, in one row without any mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from corpusmill.common.errors import Diverged
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.divergence import divergences
from corpusmill.train.evaluate.rows import Query, Tree, laid_out
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from tests.train.generate.models import VOCAB, model

Make = Callable[..., dict[str, Any]]


def queries(seed: int = 0) -> list[Query]:
    """30 contexts with 4 continuations each; some are longer than 48 positions."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(30):
        context = rng.integers(1, VOCAB, rng.integers(1, 44)).tolist()
        found += [Query(context, rng.integers(1, VOCAB, rng.integers(1, 12)).tolist()) for _ in range(4)]
    return found


def alone(made: Decoder, query: Query, longest: int) -> tuple[np.ndarray[Any, Any], bool]:
    row = torch.tensor([[*query.context, *query.continuation][-(longest + 1) :]])
    count = len(query.continuation)
    with torch.no_grad():
        logits = made(row[:, :-1])[0, -count:]
    wanted = row[0, -count:]
    greedy = bool((logits.argmax(-1) == wanted).all())
    return logits.log_softmax(-1).gather(1, wanted[:, None]).squeeze(1).numpy(), greedy


def scorer(made: Decoder, config: Make, **settings: Any) -> Scorer:
    checked = TrainConfig.model_validate(config(**{"data.sequence_length": 48, **settings}))
    return Scorer(ParallelModel([made], World()), checked, World())


@pytest.mark.parametrize("rows", [1, 16])
def test_packed_queries_score_as_each_alone(config: Make, rows: int) -> None:
    made = model()
    given = queries()
    likeliest = [
        Query(q.context, [int(made(torch.tensor([q.context]))[0, -1].argmax())]) for q in given[:40:4]
    ]
    given += likeliest
    found = scorer(made, config).answers(given, rows)
    for query, answer in zip(given, found, strict=True):
        wanted, greedy = alone(made, query, 48)
        np.testing.assert_allclose(answer.tokens, wanted, atol=1e-5)
        assert answer.greedy == greedy
        assert answer.sum == pytest.approx(float(wanted.sum()), abs=1e-4)
    assert all(answer.greedy for answer in found[-len(likeliest) :])
    assert made.score.__name__ == "token_losses"  # as it was


def test_order_and_company_change_nothing(config: Make) -> None:
    made, given = model(), queries(1)
    there = scorer(made, config).answers(given)
    back = scorer(made, config).answers(given[::-1])[::-1]
    for one, other in zip(there, back, strict=True):
        np.testing.assert_allclose(one.tokens, other.tokens, atol=1e-5)


def test_a_query_without_tokens_is_refused(config: Make) -> None:
    for query in (Query([], [1]), Query([1], [])):
        with pytest.raises(ValueError, match="query 0: context and continuation must have a token each"):
            scorer(model(), config).answers([query])


def test_surprises_of_the_likeliest_token(config: Make) -> None:
    """Their size is its probability, their sign whether it is the label; also where its probability is 1."""
    for scale, near in ((3.0, 1e-5), (40.0, 1e-4)):
        made = model(scale=scale)
        rng = np.random.default_rng(3)
        tokens = torch.from_numpy(rng.integers(1, VOCAB, (4, 21)))
        rows = torch.zeros(4, 20, dtype=torch.int64)
        batch = {
            "tokens": tokens[:, :-1],
            "labels": tokens[:, 1:].clone(),
            "documents": rows,
            "positions": rows,
        }
        with torch.no_grad():
            shares = made(batch["tokens"]).double().softmax(-1)
        batch["labels"][:, ::2] = shares.argmax(-1)[:, ::2]
        batch["labels"][0, :3] = -100
        (found,) = scorer(made, config).surprises_of_likeliest([batch])
        scored = batch["labels"] >= 0
        np.testing.assert_allclose((-found.abs()).exp()[scored], shares.amax(-1)[scored], atol=near)
        assert torch.equal(~torch.signbit(found)[scored], (shares.argmax(-1) == batch["labels"])[scored])
        assert not found[~scored].any()
    assert float(shares.amax()) == 1.0


@pytest.mark.parametrize("name", ["embedding.weight", "layers.1.ffn.down.weight"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_log_probabilities_that_are_no_numbers_are_refused(config: Make, name: str, value: float) -> None:
    """Of choices that are all NaN the first is the highest: it was right in every pair of BLiMP."""
    made = model()
    with torch.no_grad():
        made.get_parameter(name).view(-1)[7:9] = value
    given = scorer(made, config)
    batch = laid_out([[Tree([1, 2], [[3, 4], [5]], [0, 1])]]).batch
    for call in (
        lambda: given.answers(queries()),
        lambda: given.total([batch]),
        lambda: list(given.losses([batch])),
        lambda: list(given.surprises_of_likeliest([batch])),
        lambda: list(divergences(given, scorer(model(), config), [batch])),
        lambda: list(divergences(scorer(model(), config), given, [batch])),
    ):
        with pytest.raises(
            Diverged,
            match=f"log-probabilities are not finite.* {name} is not: the training diverged, score an",
        ) as found:
            call()
        assert "\n" not in str(found.value)


def test_half_precision_scores_and_chooses_as_single(config: Make) -> None:
    """bf16 has 8 bits: a token's log-probability is within 0.1 nats of that in single precision, on average within 0.02, and of
    choices that are 0.2 nats apart or more the same one is the likeliest."""
    made, given = model(), queries(2)
    single = scorer(made, config).answers(given)
    half = scorer(made, config, precision="bf16").answers(given)
    off = np.concatenate([np.abs(one.tokens - other.tokens) for one, other in zip(single, half, strict=True)])
    assert 0.005 < off.max() < 0.1 and off.mean() < 0.02
    sums = [np.array([answer.sum for answer in found]).reshape(-1, 4) for found in (single, half)]
    ordered = np.sort(sums[0])
    clear = ordered[:, -1] - ordered[:, -2] > 0.2
    assert clear.sum() >= 25
    np.testing.assert_array_equal(sums[0].argmax(1)[clear], sums[1].argmax(1)[clear])
