"""Label smoothing beside PyTorch's, noise and adversarial embeddings beside their formulas; validation and loss stay the cross entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.regularization import RegularizationConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.finetune.regularize import Regularizer
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.trainer import train
from tests.train.finetune.test_distill import VOCAB, models, rows

Make = Callable[..., dict[str, Any]]


def gradients(model: ParallelModel) -> dict[str, torch.Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.parts[0].zero_grad()
    return found


def learnt(
    model: ParallelModel, weight: float = 0.5, batch: dict[str, torch.Tensor] | None = None, **settings: float
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Losses and gradients of a regularized pass."""
    regularizer = Regularizer(RegularizationConfig(**settings))
    model.train()
    with regularizer.learning(model):
        (found,) = model.backward([batch or rows()], weight)
    return found, gradients(model)


@pytest.mark.parametrize("chunk", [None, 5])
def test_smoothing_is_that_of_pytorch(chunk: int | None) -> None:
    model, _ = models()
    model.parts[0].config = model.parts[0].config.model_copy(update={"loss_chunk": chunk})
    found, ours = learnt(model, label_smoothing=0.2)
    logits = model.parts[0](rows()["tokens"])[..., :VOCAB]
    labels = rows()["labels"].flatten()
    whole = model.parts[0](rows()["tokens"]).flatten(0, 1)
    plain = F.cross_entropy(whole, labels, reduction="none")
    torch.testing.assert_close(found.flatten(), plain, rtol=1e-5, atol=1e-6)
    # The mean over tokens, not over the padding of the vocabulary, of which PyTorch knows nothing.
    scored = labels >= 0
    log_p = whole.log_softmax(-1)[scored]
    smooth = -0.8 * log_p.gather(1, labels[scored][:, None]).sum() - 0.2 * log_p[:, :VOCAB].mean(1).sum()
    (smooth * 0.5).backward()
    for name, value in gradients(model).items():
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-6, msg=name)
    # Without padding the formula is PyTorch's.
    wanted = F.cross_entropy(logits.flatten(0, 1), labels, reduction="sum", label_smoothing=0.2)
    same = logits.flatten(0, 1).log_softmax(-1)[scored]
    torch.testing.assert_close(
        -0.8 * same.gather(1, labels[scored][:, None]).sum() - 0.2 * same.mean(1).sum(), wanted, rtol=1e-5, atol=1e-5
    )  # fmt: skip


def test_noise_is_uniform_and_depends_on_the_rows_keys() -> None:
    model, _ = models()
    part, regularizer = model.parts[0], Regularizer(RegularizationConfig(embedding_noise=6.0))
    tokens, positions = rows()["tokens"], torch.arange(12)[None]
    plain, keys = part.embed(tokens, positions, None), torch.tensor([3, 4])
    with regularizer.learning(model):
        first, again = (part.embed(tokens, positions, keys) - plain for _ in range(2))
        other = part.embed(tokens, positions, keys + 7) - plain
        assert torch.equal(part.embed(tokens, positions, None), plain)  # outside of training
    assert "embed" not in vars(part) and torch.equal(first, again) and not torch.equal(first, other)
    highest = 6 / math.sqrt(12 * 16)
    assert float(first.abs().max()) <= highest + 1e-6 and float(first.abs().max()) > 0.95 * highest
    assert float(first.std()) == pytest.approx(highest / math.sqrt(3), rel=0.1)
    assert not torch.equal(first[0], first[1])


def test_the_second_pass_is_perturbed_along_the_gradient() -> None:
    model, _ = models()
    part, batch = model.parts[0], rows()
    found, ours = learnt(model, adversarial=0.7)
    kept = list[torch.Tensor]()
    embed = part.embed

    def seen(*arguments: Any) -> torch.Tensor:
        x = embed(*arguments)
        x.retain_grad()
        kept.append(x)
        return x

    part.embed = seen  # type: ignore[method-assign]
    plain = part(**batch)
    (plain.sum() * 0.25).backward()
    gradient = kept[0].grad
    assert gradient is not None
    norm = gradient.flatten(1).norm(dim=1)[:, None, None]
    moved = 0.7 * gradient / norm
    part.embed = lambda *arguments: embed(*arguments) + moved  # type: ignore[method-assign]
    (part(**batch).sum() * 0.25).backward()
    torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
    for name, value in gradients(model).items():
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(
    "settings",
    [{"label_smoothing": 0.1}, {"embedding_noise": 5.0}, {"adversarial": 0.2, "embedding_noise": 1.0}],
)
def test_a_resumed_run_is_the_unbroken_one(settings: dict[str, float], config: Make, tmp_path: Path) -> None:
    made = config(
        output=str(tmp_path / "whole"),
        **{"regularization": settings, "schedule.steps": 8, "checkpoint.every": 3},
    )
    whole = train(TrainConfig.model_validate(made))
    parts = {**made, "output": str(tmp_path / "parts")}
    train(TrainConfig.model_validate({**parts, "stop_after": 5}))
    again = train(TrainConfig.model_validate(parts))
    assert again["weights_xxh3"] == whole["weights_xxh3"]
    plain = config(output=str(tmp_path / "plain"), **{"schedule.steps": 8})
    other = train(TrainConfig.model_validate(plain))
    assert other["weights_xxh3"] != whole["weights_xxh3"]
    first = [read_metrics(Folder(one["output"]))[0]["loss"] for one in (made, plain)]
    if "label_smoothing" in settings:  # what is reported is the cross entropy, of the same first weights
        assert first[0] == first[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regularization": {}}, "changes nothing: set label_smoothing, embedding_noise or adversarial"),
        (
            {"regularization": {"adversarial": 1.0}, "parallel": {"tensor": 2}},
            r"regularization.adversarial: needs whole rows in one process: set parallel.tensor and parallel.pipeline to 1",
        ),
        ({"regularization": {"adversarial": 1.0}, "model.z_loss": 1e-4}, "would count model.z_loss and model.moe twice"),
        (
            {"regularization": {"label_smoothing": 0.1}, "distillation": {"teacher": "x"}},
            "regularization and distillation exclude each other",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_combined(settings: dict[str, Any], message: str, config: Make) -> None:
    with pytest.raises(UserError, match=message):
        validate(TrainConfig, config(**settings), "config.yaml")
