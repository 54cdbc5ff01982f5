"""A step that is not taken leaves every byte of weights and moments as it was; limits hold for all processes together."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.train import step as step_module
from corpusmill.train.optim import make_optimizer
from corpusmill.train.optim.make import state_tensors
from corpusmill.train.optim.take import step_where
from corpusmill.train.step import step_signals

INF = math.inf
FREE = (INF, INF)


def look(loss: float = 3.0, norm: float = 1.0, rms: float = 1.0, limits: tuple[float, float] = FREE) -> list:
    return step_signals(
        *(torch.tensor(value, dtype=torch.float64) for value in (loss, norm, rms)), limits
    ).tolist()


def test_what_was_looked_at() -> None:
    assert look() == [3.0, 1.0, 1.0, 1.0]
    assert step_signals(torch.tensor(6.0).double(), torch.tensor(1.0), None, FREE).tolist() == [
        6.0,
        1.0,
        0.0,
        1.0,
    ]


@pytest.mark.parametrize(
    ("values", "limits", "taken"),
    [
        ({}, (3.0, 1.0), True), ({}, (2.99, 1.0), False), ({}, (3.0, 0.99), False), ({"rms": INF}, (3.0, 1.0), True),
        ({"loss": math.nan}, FREE, False), ({"loss": INF}, FREE, False), ({"loss": -INF}, FREE, False),
        ({"norm": math.nan}, FREE, False), ({"norm": INF}, FREE, False), ({}, (-INF, -INF), False),
    ],
)  # fmt: skip
def test_beyond_a_limit_or_not_finite_is_not_taken(
    values: dict[str, float], limits: tuple[float, float], taken: bool
) -> None:
    assert look(**values, limits=limits)[3] == taken


def test_a_bad_norm_of_one_process_is_bad_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the whole norm is not the same everywhere, as when one process's memory is at fault."""
    rows: list[Tensor] = []
    norms = (math.nan, 2.0)
    monkeypatch.setattr(step_module.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(step_module.dist, "all_reduce", lambda total: rows.append(total.clone()))
    for norm in norms:
        step_signals(torch.tensor(1.5).double(), torch.tensor(norm), None, FREE)
    monkeypatch.setattr(step_module.dist, "all_reduce", lambda total: total.copy_(sum(rows)))
    for norm in norms:
        found = step_signals(torch.tensor(1.5).double(), torch.tensor(norm), None, FREE)
        assert found[0] == 3.0 and found[1].isnan() and found[3] == 0.0


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
    step_where(optimizer, torch.tensor(True))
    before = everything()
    gradients(math.nan)
    if fused and getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = torch.tensor(1.0)  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    else:
        step_where(optimizer, torch.tensor(False))
    after = everything()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    gradients(0.1)
    step_where(optimizer, torch.tensor(True))
    assert not torch.equal(everything()["0.weight"], before["0.weight"])
    assert all(t.isfinite().all() for t in everything().values())
