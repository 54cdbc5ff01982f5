"""A step that is not taken leaves every byte of weights and moments as it was; limits hold for all processes together."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from schemas.optim import OptimizerConfig
from train.guard import mask
from train.guard.mask import observed, step_if
from train.optim import make_optimizer
from train.optim.state import state_tensors

INF = math.inf
FREE = (INF, INF, INF)


def look(
    loss: float = 6.0, norm: float = 1.0, square: float = 8.0, limits: tuple[float, float, float] = FREE
) -> list:
    tensors = [torch.tensor(value, dtype=torch.float64) for value in (loss, norm, square)]
    return observed(*tensors, 2.0, 4, 1, limits).tolist()


def test_numbers_are_means_of_all_tokens() -> None:
    assert look() == [3.0, 1.0, 1.0, 1.0]
    unknown = observed(torch.tensor(6.0).double(), torch.tensor(1.0), None, 2.0, 4, 1, FREE)
    assert unknown.tolist() == [3.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("values", "limits", "taken"),
    [
        ({}, (3.0, 1.0, 1.0), True), ({}, (2.99, 1.0, 1.0), False), ({}, (3.0, 0.99, 1.0), False),
        ({}, (3.0, 1.0, 0.99), False), ({"loss": math.nan}, FREE, False), ({"loss": INF}, FREE, False),
        ({"loss": -INF}, FREE, False), ({"norm": math.nan}, FREE, False), ({"norm": INF}, FREE, False),
        ({"square": math.nan}, FREE, False), ({}, (-INF, -INF, -INF), False),
    ],
)  # fmt: skip
def test_beyond_a_limit_or_not_finite_is_not_taken(
    values: dict[str, float], limits: tuple[float, float, float], taken: bool
) -> None:
    assert look(**values, limits=limits)[3] == taken


def test_a_bad_norm_of_one_process_is_bad_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the whole norm is not the same everywhere, as when one process's memory is at fault."""
    rows: list[Tensor] = []
    norms = (math.nan, 2.0)
    for second_look in (False, True):
        monkeypatch.setattr(
            mask, "all_sum", (lambda t: sum(rows)) if second_look else (lambda t: rows.append(t) or t)
        )
        found = [observed(torch.tensor(3.0).double(), torch.tensor(n), None, 2.0, 4, 2, FREE) for n in norms]
    for values in found:
        assert values[0] == 3.0 and values[1].isnan() and values[3] == 0.0


KINDS = ("adamw", "muon", "lion", "lamb", "adafactor", "sgd")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fused", [False, True])
def test_a_step_not_taken_changes_nothing(kind: str, fused: bool) -> None:
    """OLMo-core's case (b): times 0, a NaN gradient still is NaN in the moments. `fused`: as on a GPU."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = make_optimizer(model, OptimizerConfig(kind=kind))

    def gradients(value: float) -> None:
        for p in model.parameters():
            p.grad = torch.full_like(p, value)

    def everything() -> dict[str, Tensor]:
        return {
            n: t.clone() for n, t in [*model.state_dict().items(), *state_tensors(model, optimizer).items()]
        }

    gradients(0.1)
    step_if(optimizer, torch.tensor(1.0))
    before = everything()
    gradients(math.nan)
    if fused and getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = torch.tensor(1.0)  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    else:
        step_if(optimizer, torch.tensor(0.0))
    after = everything()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    gradients(0.1)
    step_if(optimizer, torch.tensor(1.0))
    assert not torch.equal(everything()["0.weight"], before["0.weight"])
    assert all(t.isfinite().all() for t in everything().values())
