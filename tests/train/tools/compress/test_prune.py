"""What is pruned: exact shares and patterns, Wanda beside magnitude, and layers that do nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.tools.compress.calibrate import Stream
from corpusmill.train.tools.compress.prune import least_important, outside, scores, smallest, without_layers
from tests.train.evaluate.scorer_layouts import batches
from tests.train.generate.models import VOCAB, model
from tests.train.models import SMALL


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 6), st.integers(1, 80), st.floats(0.01, 0.99), st.integers(0, 100), st.booleans())
def test_every_row_loses_its_share_of_smallest_weights(
    rows: int, width: int, share: float, seed: int, equal: bool
) -> None:
    weight = normal(rows, width, seed=seed)
    score = scores(weight.round() if equal else weight)
    pruned = smallest(score, share)
    assert (pruned.sum(1) == round(share * width)).all()
    for row in range(rows):
        if 0 < int(pruned[row].sum()) < width:
            assert score[row][pruned[row]].max() <= score[row][~pruned[row]].min()


@given(st.integers(1, 6), st.integers(1, 20), st.sampled_from([(2, 4), (1, 4), (4, 8)]), st.integers(0, 100))
def test_a_pattern_keeps_exactly_so_many_of_each_group(
    rows: int, groups: int, pattern: tuple[int, int], seed: int
) -> None:
    keep, of = pattern
    score = scores(normal(rows, groups * of, seed=seed))
    pruned = outside(score, keep, of, "x").view(rows, groups, of)
    assert (pruned.sum(-1) == of - keep).all()
    parts = score.view(rows, groups, of)
    lowest_kept = parts.masked_fill(pruned, float("inf")).amin(-1)
    assert (parts.masked_fill(~pruned, 0.0).amax(-1) <= lowest_kept).all()


def test_rows_that_a_pattern_does_not_divide_are_named() -> None:
    with pytest.raises(
        UserError, match=r"--pattern 2:4: layers.0.ffn.up.weight has rows of 6 weights, no multiple of 4"
    ):
        outside(torch.ones(2, 6), 2, 4, "layers.0.ffn.up.weight")


def test_wanda_is_magnitude_for_inputs_of_one_norm_and_follows_them_otherwise() -> None:
    weight = normal(16, 64)
    for norm in (1.0, 0.3):
        squares = torch.full((64,), norm, dtype=torch.float64)
        assert torch.equal(smallest(scores(weight, squares), 0.5), smallest(scores(weight), 0.5))
    squares = torch.ones(64, dtype=torch.float64)
    squares[:8] = 0.0  # features that are never there
    pruned = smallest(scores(weight, squares), 0.5)
    assert pruned[:, :8].all() and not torch.equal(pruned, smallest(scores(weight), 0.5))


def test_wanda_loses_less_than_magnitude_where_features_differ() -> None:
    weight = normal(16, 64)
    x = normal(500, 64, seed=1).double() * torch.logspace(-2, 1, 64, dtype=torch.float64)
    outputs = x @ weight.T.double()
    lost = []
    for squares in (x.square().mean(0), None):
        left = weight.masked_fill(smallest(scores(weight, squares), 0.5), 0.0)
        lost.append(float((x @ left.T.double() - outputs).square().mean()))
    assert lost[0] < 0.5 * lost[1]


def test_the_least_important_layers_are_named_in_order() -> None:
    assert least_important([0.5, 0.1, 0.3, 0.1], 2) == [1, 3]
    assert least_important([0.5, 0.1, 0.3, 0.1], 3) == [1, 2, 3]
    with pytest.raises(UserError, match="--layers 4: the model has 4 layers, and one must be left"):
        least_important([0.5, 0.1, 0.3, 0.1], 4)


def with_idle_layer(made: Decoder, number: int) -> Decoder:
    """Whose layer of this number adds nothing."""
    with torch.no_grad():
        for name in (f"layers.{number}.attention.o.weight", f"layers.{number}.ffn.down.weight"):
            made.get_parameter(name).zero_()
    return made


@pytest.mark.parametrize("number", [0, 1, 3])
def test_removing_a_layer_that_is_the_identity_changes_nothing(number: int) -> None:
    made = with_idle_layer(model(layers=4, kv_heads=2), number)
    stream = Stream(made, batches(1))
    importance = [stream.advance(layer) for layer in made.layers.values()]
    assert importance[number] == pytest.approx(0, abs=1e-12)
    assert all(value > 1e-4 for place, value in enumerate(importance) if place != number)
    smaller = without_layers(made, least_important(importance, 1))
    ids = torch.randint(0, VOCAB, (2, 20), generator=torch.Generator().manual_seed(0))
    assert smaller.config.layers == 3 and len(smaller.state_dict()) < len(made.state_dict())
    assert torch.equal(smaller(ids), made(ids))


def test_experts_stay_where_the_config_says() -> None:
    moe = {"experts": 4, "top_k": 2, "ffn_dim": 24, "first": 1}
    made = Decoder(ModelConfig.model_validate({**SMALL, "moe": moe}), VOCAB).eval()
    assert without_layers(made, [2]).experts.keys() == {1}
    with pytest.raises(
        UserError, match="--layers 1: without layers 0 the layers with experts are others than"
    ):
        without_layers(made, [0])
