"""Distillation: the loss and its gradients beside autograd's, nothing to learn from oneself, a run that comes near its teacher, and teachers
that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.distillation import DistillationConfig
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.batch import MicroBatch
from corpusmill.train.evaluate.divergence import between_runs
from corpusmill.train.finetune.distill import Distiller
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.trainer import train

Make = Callable[..., dict[str, Any]]
SMALL = {"dim": 16, "layers": 1, "heads": 2, "ffn_dim": 32, "vocab_multiple": 8}
VOCAB = 40


def models(seed: int = 3) -> tuple[ParallelModel, ParallelModel]:
    """(student, teacher), whose vocabulary is padded alike."""
    student = Decoder(ModelConfig.model_validate(SMALL), VOCAB, seed=1)
    teacher = Decoder(ModelConfig.model_validate({**SMALL, "dim": 24, "heads": 3}), VOCAB, seed)
    with torch.no_grad():
        for parameter in (*student.parameters(), *teacher.parameters()):
            parameter.mul_(3)  # distributions that are not flat
    return ParallelModel([student]), ParallelModel([teacher.requires_grad_(False)])


def rows() -> dict[str, torch.Tensor]:
    ids = torch.randint(VOCAB, (2, 13), generator=torch.Generator().manual_seed(4))
    labels = ids[:, 1:].clone()
    labels[0, :5] = -100
    return {"tokens": ids[:, :-1], "labels": labels}


@pytest.mark.parametrize(("temperature", "share"), [(1.0, 1.0), (2.0, 1.0), (3.0, 0.4)])
def test_losses_and_gradients_are_those_of_the_formula(temperature: float, share: float) -> None:
    student, teacher = models()
    distiller = Distiller(
        DistillationConfig(teacher="-", temperature=temperature, share=share), teacher, chunk=5
    )
    distiller.begin([MicroBatch(rows(), torch.zeros(2), torch.zeros(2))])
    with distiller.learning(student):
        (found,) = student.backward([rows()], 0.5)
    gradients = {name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None}
    student.parts[0].zero_grad()
    logits = student.parts[0](rows()["tokens"])
    with torch.no_grad():
        wanted = teacher.parts[0](rows()["tokens"])
    kl = F.kl_div(
        (logits / temperature).log_softmax(-1), (wanted / temperature).softmax(-1), reduction="none"
    ).sum(-1)
    entropy = F.cross_entropy(logits.flatten(0, 1), rows()["labels"].flatten(), reduction="none").view_as(kl)
    loss = (share * temperature**2 * kl + (1 - share) * entropy) * (rows()["labels"] >= 0)
    torch.testing.assert_close(found, loss, rtol=1e-5, atol=1e-6)
    (loss.sum() * 0.5).backward()
    for name, parameter in student.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_there_is_nothing_to_learn_from_oneself() -> None:
    student, _ = models()
    distiller = Distiller(DistillationConfig(teacher="-"), student)
    distiller.begin([MicroBatch(rows(), torch.zeros(2), torch.zeros(2))])
    with distiller.learning(student):
        (found,) = student.backward([rows()], 1.0)
    assert float(found.abs().max()) == 0
    assert all(p.grad is None or float(p.grad.abs().max()) < 1e-6 for p in student.parameters())


def test_a_student_comes_near_its_teacher(config: Make, tmp_path: Path) -> None:
    teacher = config(output=str(tmp_path / "teacher"), **{"schedule.steps": 40, "optimizer.lr": 1e-2})
    train(TrainConfig.model_validate(teacher))
    found = {}
    for name, more in (("alone", {}), ("taught", {"distillation.teacher": teacher["output"]})):
        own = config(
            output=str(tmp_path / name),
            **{
                "model.dim": 16,
                "model.heads": 2,
                "model.kv_heads": 2,
                "optimizer.lr": 1e-2,
                "schedule.steps": 30,
                **more,
            },
        )
        chosen = TrainConfig.model_validate(own)
        train(chosen)
        between = between_runs(
            (TrainConfig.model_validate(teacher), Folder(teacher["output"])), (chosen, Folder(own["output"]))
        )
        found[name] = sum(one["a_b"].value for one in between.values())
    assert found["taught"] < found["alone"]
    # Resumed to the bit, teacher and all.
    parts = config(
        output=str(tmp_path / "parts"),
        **{
            "model.dim": 16, "model.heads": 2, "model.kv_heads": 2, "optimizer.lr": 1e-2, "schedule.steps": 30,
            "distillation.teacher": teacher["output"],
        },
    )  # fmt: skip
    train(TrainConfig.model_validate({**parts, "stop_after": 12}))
    train(TrainConfig.model_validate(parts))
    whole, again = (read_metrics(Folder(tmp_path / name))[-1]["loss"] for name in ("taught", "parts"))
    assert whole == again


def test_teachers_that_do_not_fit_are_refused(config: Make, tmp_path: Path) -> None:
    teacher = config(output=str(tmp_path / "teacher"), **{"schedule.steps": 5})
    train(TrainConfig.model_validate(teacher))
    other = config(
        output=str(tmp_path / "a"), **{"distillation.teacher": teacher["output"], "model.vocab_multiple": 64}
    )
    with pytest.raises(
        UserError, match="the teacher's head has 96 rows, the student's 128: set model.vocab_multiple"
    ):
        train(TrainConfig.model_validate(other))
    twice = config(
        output=str(tmp_path / "b"), **{"distillation.teacher": teacher["output"], "distillation.model": SMALL}
    )
    with pytest.raises(UserError, match="is a run, and has its own: leave it out"):
        train(TrainConfig.model_validate(twice))
    missing = config(output=str(tmp_path / "c"), **{"distillation.teacher": str(tmp_path)})
    with pytest.raises(UserError, match="is no run: describe its model"):
        train(TrainConfig.model_validate(missing))
    for name, more, message in (
        ("capped", {"model.logit_softcap": 20.0}, r"caps its logits \(model.logit_softcap\)"),
        (
            "masked",
            {"model.causal": False, "data.masking": {"token": "<|endoftext|>"}},
            "is a masked language model",
        ),
    ):
        unfit = config(output=str(tmp_path / name), **{"schedule.steps": 5, **more})
        train(TrainConfig.model_validate(unfit))
        student = config(output=str(tmp_path / "d"), **{"distillation.teacher": unfit["output"]})
        with pytest.raises(UserError, match=message):
            train(TrainConfig.model_validate(student))
    with pytest.raises(UserError, match="distillation: has no z-loss: set model.z_loss to 0"):
        validate(TrainConfig, config(**{"distillation.teacher": "x", "model.z_loss": 0.1}), "config")
