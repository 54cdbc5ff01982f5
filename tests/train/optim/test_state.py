"""States come back whole or not at all, and a run that is cut goes on to the same bits, with every optimizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint, trainer
from corpusmill.train.checkpoint import OPTIMIZER
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim import make_optimizer
from corpusmill.train.optim.make import prepare, state_tensors
from corpusmill.train.trainer import train

KINDS = {
    "adamw": {"step", "exp_avg", "exp_avg_sq"},
    "muon": {"step", "exp_avg", "exp_avg_sq", "momentum_buffer"},
    "lion": {"exp_avg"},
    "adafactor": {"step", "row_var", "col_var", "variance"},
    "lamb": {"step", "exp_avg", "exp_avg_sq"},
    "sgd": {"momentum_buffer"},
}


def fresh(config: OptimizerConfig) -> tuple[Decoder, torch.optim.Optimizer]:
    model = Decoder(ModelConfig(dim=16, layers=1, heads=2, ffn_dim=16), 20)
    return model, make_optimizer(model, config)


def stepped(config: OptimizerConfig) -> tuple[Decoder, torch.optim.Optimizer]:
    model, optimizer = fresh(config)
    for _ in range(2):
        model(torch.arange(20)[None]).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_comes_back(kind: Any, tmp_path: Path) -> None:
    config = OptimizerConfig(kind=kind)
    model, optimizer = stepped(config)
    saved = state_tensors(model, optimizer)
    assert {name.split("/")[0] for name in saved} == KINDS[kind]
    checkpoint.save(Folder(tmp_path), 2, checkpoint.live(model, optimizer), {})
    found = checkpoint.load_step(Folder(tmp_path), 2)
    other, again = fresh(config)
    checkpoint.restore(found, other, again)
    restored = state_tensors(other, again)
    assert restored.keys() == saved.keys()
    for name, tensor in saved.items():
        assert torch.equal(tensor, restored[name]) and tensor.dtype == restored[name].dtype, name
    assert all(group["lr"] == config.lr for group in again.param_groups)
    assert all(p.grad is None for p in other.parameters())


@pytest.mark.parametrize(
    ("kind", "other", "named"),
    [
        ("lion", "adamw", r"/\S+ is absent"),
        ("adamw", "lion", r"is F32 \(.*\), this optimizer has no such tensor"),
        ("muon", "adamw", r"is absent"),
    ],
)
def test_another_optimizers_state_is_refused(kind: Any, other: Any, named: str, tmp_path: Path) -> None:
    checkpoint.save(Folder(tmp_path), 2, checkpoint.live(*stepped(OptimizerConfig(kind=kind))), {})
    found = checkpoint.load_step(Folder(tmp_path), 2)
    with pytest.raises(WorkError, match=f"its {OPTIMIZER} is another one: .*{named}"):
        checkpoint.restore(found, *fresh(OptimizerConfig(kind=other)))


def test_preparing_changes_no_parameter_and_no_state_that_is_there() -> None:
    for kind in KINDS:
        model, optimizer = fresh(OptimizerConfig(kind=kind, momentum=0.9) if kind == "sgd" else
                                 OptimizerConfig(kind=kind))  # fmt: skip
        before = [p.detach().clone() for p in model.parameters()]
        prepare(optimizer)
        assert all(torch.equal(p, q) for p, q in zip(before, model.parameters(), strict=True)), kind
        model, optimizer = stepped(OptimizerConfig(kind=kind))
        state = {name: tensor.clone() for name, tensor in state_tensors(model, optimizer).items()}
        prepare(optimizer)
        assert all(
            torch.equal(tensor, state[name]) for name, tensor in state_tensors(model, optimizer).items()
        )


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("adamw 8 bit", marks=pytest.mark.slow)])
def test_a_cut_run_ends_bit_for_bit_as_an_unbroken_one(
    kind: str, config: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        "schedule.steps": 6, "schedule.warmup_steps": 2, "checkpoint.every": 1, "checkpoint.keep_last": 1,
        "validation.every": None, "optimizer.kind": kind.split()[0], "data.batch_ramp": {3: 4},
    }  # fmt: skip
    if "8" in kind:
        pytest.importorskip("torchao")
        settings |= {
            "optimizer.state_bits": 8,
            "model.dim": 64,
            "model.ffn_dim": 128,
        }  # 4,096 elements and more

    def run(output: str) -> list[str]:
        train(TrainConfig.model_validate(config(**settings, output=str(tmp_path / output))))
        found = checkpoint.load_newest(Folder(tmp_path / output))
        assert found is not None and found.step == 6
        if "8" in kind:
            moment = checkpoint.read_tensors(found, OPTIMIZER)["exp_avg/layers.0.ffn.gate.weight"].view(
                -1, 256
            )
            codes = (
                moment / moment.abs().amax(1, keepdim=True)
            ).unique()  # 256 of them, rounded in some blocks
            assert 100 < len(codes) < moment.numel() / 8 and -1.0 in codes and 1.0 in codes
        return [file.xxh3 for file in found.manifest.files if file.path.endswith(".safetensors")]

    expected = run("unbroken")
    healthy = trainer.train_step
    for cut in (1, 4):

        def fatal(state: Any, *rest: Any, cut: int = cut, **more: Any) -> Any:
            if state.step == cut:
                raise KeyboardInterrupt
            return healthy(state, *rest, **more)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(trainer, "train_step", fatal)
            run(f"cut-{cut}")
        assert run(f"cut-{cut}") == expected, cut


@pytest.mark.parametrize("kind", ["adamw", "muon", "lion", "lamb", "adafactor", "sgd"])
def test_a_state_that_is_prepared_is_that_of_a_first_step(kind: Any) -> None:
    """So that a moving average may be kept beside states that no step has made yet."""
    weights = []
    for prepared in (False, True):
        model = Decoder(ModelConfig(dim=16, layers=1, heads=2, vocab_multiple=8), 20, seed=1)
        optimizer = make_optimizer(model, OptimizerConfig(kind=kind, lr=0.01))
        if prepared:
            prepare(optimizer)
        for number in range(3):
            generator = torch.Generator().manual_seed(number)
            for p in model.parameters():
                p.grad = torch.randn(p.shape, generator=generator)
            optimizer.step()
        weights.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
