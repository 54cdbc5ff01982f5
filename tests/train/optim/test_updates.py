"""Each optimizer against its paper's formulas, written out here; and each learns."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer, set_rate
from corpusmill.train.optim.make import kind_of
from corpusmill.train.optim.muon import Muon, orthogonalise

Array = np.ndarray
Update = Callable[[dict[str, Any], Array, Array, float], Array]  # state, p, g, weight decay -> p
LR, STEPS = 0.03, 6


class Parameters(nn.Module):
    """One of each kind, in float64; experts are a stack of matrices."""

    SHAPES: ClassVar = {
        "a.weight": (6, 4), "b.weight": (4, 6), "c.weight": (6, 4), "experts.weight": (3, 5, 4), "norm.weight": (7,),
        "a.bias": (6,), "embedding.weight": (9, 4), "head.weight": (9, 4),
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(1)
        for name, shape in self.SHAPES.items():
            self.register_parameter(
                name.replace(".", "_"), nn.Parameter(torch.from_numpy(rng.normal(size=shape)))
            )

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        for name in self.SHAPES:
            yield name, getattr(self, name.replace(".", "_"))


def adamw(state: dict[str, Any], p: Array, g: Array, decay: float, betas: Any = (0.9, 0.95)) -> Array:
    t = state["t"] = state.get("t", 0) + 1
    m = state["m"] = betas[0] * state.get("m", 0) + (1 - betas[0]) * g
    v = state["v"] = betas[1] * state.get("v", 0) + (1 - betas[1]) * g * g
    p = p - LR * decay * p
    return p - LR * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + 1e-8)


def lion(state: dict[str, Any], p: Array, g: Array, decay: float) -> Array:
    m = state.get("m", np.zeros_like(g))
    state["m"] = 0.99 * m + 0.01 * g
    return p - LR * (np.sign(0.9 * m + 0.1 * g) + decay * p)


def lamb(state: dict[str, Any], p: Array, g: Array, decay: float) -> Array:
    t = state["t"] = state.get("t", 0) + 1
    m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    v = state["v"] = 0.95 * state.get("v", 0) + 0.05 * g * g
    r = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-6) + decay * p
    return p - LR * (np.linalg.norm(p) / np.linalg.norm(r)) * r


def sgd(state: dict[str, Any], p: Array, g: Array, decay: float) -> Array:
    g = g + decay * p
    m = state["m"] = 0.9 * state.get("m", 0) + g
    return p - LR * (g + 0.9 * m)


def adafactor(state: dict[str, Any], p: Array, g: Array, decay: float) -> Array:
    """Algorithms 4 and 5 of Shazeer & Stern, no momentum, with decoupled decay."""
    t = state["t"] = state.get("t", 0) + 1
    new = t**-0.8
    rms = lambda x: np.sqrt(np.mean(x * x))  # noqa: E731
    alpha = max(1e-3, rms(p)) * min(LR, t**-0.5)
    if g.ndim > 1:
        r = state["r"] = (1 - new) * state.get("r", 0) + new * (g * g).mean(-1, keepdims=True)
        c = state["c"] = (1 - new) * state.get("c", 0) + new * (g * g).mean(-2, keepdims=True)
        v = r * c / r.mean(-2, keepdims=True)
    else:
        v = state["v"] = (1 - new) * state.get("v", 0) + new * g * g
    u = g / np.sqrt(v)
    return p * (1 - LR * decay) - alpha * u / max(1.0, rms(u))


def muon(state: dict[str, Any], p: Array, g: Array, decay: float) -> Array:
    m = state["m"] = 0.95 * state.get("m", 0) + 0.05 * g
    u = 0.95 * m + 0.05 * g
    made = np.stack([newton_schulz(x) for x in u.reshape(-1, *u.shape[-2:])]).reshape(u.shape)
    return p * (1 - LR * decay) - LR * 0.2 * np.sqrt(max(p.shape[-2:])) * made


def newton_schulz(g: Array) -> Array:
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / np.linalg.norm(g)
    for _ in range(5):
        x = a * x + b * (x @ x.T) @ x + c * (x @ x.T) @ (x @ x.T) @ x
    return x


def mixed(state: dict[str, Any], p: Array, g: Array, decay: float) -> Array:
    """Muon for what is decayed but the head, AdamW for the rest."""
    matrix = decay and p.shape != (9, 4)
    return muon(state, p, g, decay) if matrix else adamw(state, p, g, decay)


REFERENCES: dict[str, Update] = {
    "adamw": adamw, "lion": lion, "lamb": lamb, "sgd": sgd, "adafactor": adafactor, "muon": mixed,
}  # fmt: skip


@pytest.mark.parametrize("kind", REFERENCES)
def test_updates_are_those_of_the_formulas(kind: Any) -> None:
    model = Parameters()
    optimizer = make_optimizer(model, OptimizerConfig(kind=kind, lr=LR, weight_decay=0.1))
    wanted = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    states: dict[str, dict[str, Any]] = {name: {} for name in wanted}
    rng = np.random.default_rng(2)
    for _ in range(STEPS):
        for name, p in model.named_parameters():
            grad = rng.normal(size=p.shape)
            p.grad = torch.from_numpy(grad.copy())
            decays = name.endswith("weight") and name not in ("norm.weight", "embedding.weight")
            wanted[name] = REFERENCES[kind](states[name], wanted[name], grad, 0.1 * decays)
        optimizer.step()
    tight = (
        {"atol": 1e-5, "rtol": 0} if kind == "muon" else {"atol": 1e-9, "rtol": 0}
    )  # its iteration is float32
    for name, p in model.named_parameters():
        np.testing.assert_allclose(p.detach().numpy(), wanted[name], err_msg=name, **tight)


@pytest.mark.parametrize("scale", ["match_rms_adamw", "original"])
@pytest.mark.parametrize("shape", [(64, 24), (24, 64)])
def test_muon_is_pytorchs_where_that_exists(scale: Any, shape: tuple[int, int]) -> None:
    ours, theirs = (
        nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(1))) for _ in "ab"
    )
    mine = Muon([ours], 0.1, (0.9, 0.95), 1e-8, 0.9, True, scale)
    mine.param_groups[0]["weight_decay"] = 0.1
    other = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.1, momentum=0.9, adjust_lr_fn=scale)
    for step in range(3):
        ours.grad = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        theirs.grad = ours.grad.clone()
        mine.step()
        other.step()
    torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0)  # theirs iterates in bfloat16
    assert (ours - theirs).norm() / ours.norm() < 0.005


def test_muon_makes_orthogonal_and_matches_adamws_size() -> None:
    g = torch.randn(3, 40, 100, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(g))
    assert values.min() > 0.6 and values.max() < 1.3
    rms = orthogonalise(g).square().mean().sqrt() * 0.2 * 100**0.5
    assert 0.15 < rms < 0.25  # AdamW's is 0.2 to 0.4 (Liu et al. 2025)


def test_kinds_of_parameters_and_what_decays() -> None:
    model = Decoder(ModelConfig(dim=16, layers=2, heads=2, ffn_dim=16, tie_embeddings=False), 20)
    kinds: dict[str, int] = {}
    for name, p in model.named_parameters():
        kinds[kind_of(name, p)] = kinds.get(kind_of(name, p), 0) + 1
    assert kinds == {"embeddings": 1, "norms": 5, "matrices": 14, "head": 1}

    def groups(**settings: Any) -> list[tuple[int, float]]:
        found = make_optimizer(model, OptimizerConfig(**settings)).param_groups
        return [(len(group["params"]), group["weight_decay"]) for group in found]

    assert groups() == [(15, 0.1), (6, 0.0)]
    assert groups(decay=["matrices", "head", "embeddings"]) == [(16, 0.1), (5, 0.0)]
    assert groups(decay=[]) == [(21, 0.0)]
    assert groups(kind="muon") == [(14, 0.1), (1, 0.1), (6, 0.0)]


def test_muons_matrices_may_have_a_rate_of_their_own() -> None:
    model = Parameters()
    optimizer = make_optimizer(model, OptimizerConfig(kind="muon", lr=0.01, muon_lr=0.05))
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 0.01, 0.01])
    set_rate(optimizer, 0.001)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.005, 0.001, 0.001])


@pytest.mark.parametrize(
    ("kind", "lr"),
    [("adamw", 3e-3), ("muon", 1e-2), ("lion", 3e-3), ("lamb", 5e-2), ("adafactor", 3e-2), ("sgd", 0.3)],
)
def test_each_learns_a_small_text(kind: Any, lr: float) -> None:
    torch.manual_seed(0)
    model = Decoder(ModelConfig(dim=32, layers=1, heads=2, ffn_dim=64, vocab_multiple=8), 24)
    optimizer = make_optimizer(model, OptimizerConfig(kind=kind, lr=lr))
    tokens = (torch.arange(8)[:, None] * 5 + torch.arange(33) * 3) % 23
    losses = []
    for _ in range(60):
        loss = model(tokens[:, :-1], tokens[:, 1:]).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] > 3 and losses[-1] < 1, losses[-1]


def test_8_bit_states_need_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("torchao"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        UserError, match=r"state_bits: 8 needs torchao, .*: pip install torchao, or set it to 32"
    ):
        make_optimizer(Parameters(), OptimizerConfig(state_bits=8))
