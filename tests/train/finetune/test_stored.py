"""Stored distributions: the whole vocabulary gives the live teacher's loss, draws give it on average, a run learns from files to the bit
again after a cut, and files that do not fit are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.distillation import STORED, StoredLogits, StoreSettings
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.divergence import between_runs
from corpusmill.train.finetune.stored import Kept
from corpusmill.train.finetune.teacher_logits import keep, store
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.model.split import WHOLE
from corpusmill.train.trainer import train
from tests.train.test_commands import command

Make = Callable[..., dict[str, Any]]
TOKENS, PLACES = 11, 6


def logits(seed: int) -> Tensor:
    return 2 * torch.randn(PLACES, TOKENS, generator=torch.Generator().manual_seed(seed))


def kept(values: Tensor, settings: StoreSettings, seed: int = 0) -> Kept:
    ids, log_p, *rest = keep(values, settings, torch.Generator().manual_seed(seed))
    return Kept(ids, log_p, rest[0] if rest else None, torch.arange(len(values)), settings.kept == "sampled")


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    log_p, log_q = teacher.log_softmax(-1), student.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def grouped(values: Tensor, ids: Tensor) -> Tensor:
    """Log-probabilities of the tokens `ids`, and of all others as one."""
    log_p = values.log_softmax(-1)
    rest = torch.log1p(-log_p.gather(1, ids).exp().sum(-1, keepdim=True))
    return torch.cat((log_p.gather(1, ids), rest), 1)


@pytest.mark.parametrize("count", [1, 3, TOKENS])
def test_the_likeliest_tokens_and_the_rest_as_one(count: int) -> None:
    student, teacher = logits(1).requires_grad_(), logits(2)
    found = kept(teacher, StoreSettings(kept="top", count=count))
    if count == TOKENS:
        wanted = divergence(student, teacher)
    else:
        p, q = grouped(teacher, found.ids), grouped(student, found.ids)
        wanted = (p.exp() * (p - q)).sum(-1)
    torch.testing.assert_close(found.divergence(student.detach(), 0, WHOLE), wanted, rtol=1e-5, atol=1e-6)
    (by_logits,) = torch.autograd.grad(wanted.sum(), student)
    gradient = found.gradient(student.detach(), 0, WHOLE)
    torch.testing.assert_close(gradient, by_logits, rtol=1e-5, atol=1e-6)
    assert (wanted <= divergence(student, teacher) + 1e-6).all()
    part = found.divergence(student.detach()[2:5], 2, WHOLE)
    torch.testing.assert_close(part, wanted.detach()[2:5], rtol=1e-5, atol=1e-6)


def test_draws_are_the_whole_divergence_on_average() -> None:
    student, teacher = logits(1).requires_grad_(), logits(2)
    p = teacher.softmax(-1)
    value, gradient = torch.zeros(PLACES), torch.zeros(PLACES, TOKENS)
    for token in range(TOKENS):  # each one draw that there may be, by its probability
        ids = torch.full((PLACES, 1), token)
        one = Kept(ids, teacher.log_softmax(-1).gather(1, ids), None, torch.arange(PLACES), drawn=True)
        value += p[:, token] * one.divergence(student.detach(), 0, WHOLE)
        gradient += p[:, token, None] * one.gradient(student.detach(), 0, WHOLE)
    wanted = divergence(student, teacher)
    torch.testing.assert_close(value, wanted.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted.sum(), student)[0], rtol=1e-5, atol=1e-6)
    many = kept(teacher, StoreSettings(kept="sampled", count=20_000))
    torch.testing.assert_close(
        many.divergence(student.detach(), 0, WHOLE), wanted.detach(), rtol=0.05, atol=0.02
    )
    shares = torch.stack([(many.ids == token).float().mean(1) for token in range(TOKENS)], 1)
    torch.testing.assert_close(shares, p, rtol=0, atol=0.02)


@pytest.fixture
def taught(config: Make, tmp_path: Path) -> Make:
    """The config of a small student, beside a teacher that is trained."""
    teacher = config(output=str(tmp_path / "teacher"), **{"schedule.steps": 40, "optimizer.lr": 1e-2})
    train(TrainConfig.model_validate(teacher))

    def make(name: str, **more: Any) -> dict[str, Any]:
        return config(
            output=str(tmp_path / name),
            **{
                "model.dim": 16, "model.heads": 2, "model.kv_heads": 2, "optimizer.lr": 1e-2, "schedule.steps": 20,
                "distillation.teacher": teacher["output"], **more,
            },
        )  # fmt: skip

    return make


def losses(config: dict[str, Any]) -> list[float]:
    train(TrainConfig.model_validate(config))
    return [row["loss"] for row in read_metrics(Folder(config["output"])) if "loss" in row]


def test_a_run_learns_from_files_as_from_the_teacher_itself(taught: Make, tmp_path: Path) -> None:
    live = TrainConfig.model_validate(taught("live"))
    settings = StoreSettings(kept="top", count=96)
    summary = store(live, Folder(tmp_path / "whole"), settings)
    assert summary.mass == pytest.approx(1, abs=1e-5) and summary.files == 1
    wanted = losses(taught("live"))
    found = losses(taught("whole run", **{"distillation.stored": str(tmp_path / "whole")}))
    assert found == pytest.approx(wanted, rel=0.01, abs=1e-3)  # probabilities in 16 bits
    # A cut run ends as a whole one, to the bit.
    parts = taught("parts", **{"distillation.stored": str(tmp_path / "whole")})
    train(TrainConfig.model_validate({**parts, "stop_after": 7}))
    assert losses(parts)[-1] == found[-1]
    # Draws teach too: nearer to the teacher than without it.
    store(live, Folder(tmp_path / "draws"), StoreSettings(kept="sampled", count=16))
    own = json.loads((tmp_path / "teacher/config.json").read_text())
    teacher, near = TrainConfig.model_validate(own), {}
    for name, more in {
        "drawn": {"distillation.stored": str(tmp_path / "draws")},
        "alone": {"distillation": None},
    }.items():
        chosen = TrainConfig.model_validate(taught(name, **more))
        train(chosen)
        between = between_runs((teacher, Folder(tmp_path / "teacher")), (chosen, Folder(chosen.output_url)))
        near[name] = sum(one["a_b"].value for one in between.values())
    assert near["drawn"] < near["alone"]


def test_files_are_written_in_parts_and_again_where_they_are_missing(
    taught: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corpusmill.train.finetune.teacher_logits.FILE_BYTES", 1)  # a batch each
    student, settings = TrainConfig.model_validate(taught("run")), StoreSettings(kept="top", count=4)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    first = store(student, Folder(whole), settings)
    assert first.files == 20 and first.about.sequences == 20 * student.data.global_batch
    assert 0 < (first.mass or 0) < 1
    store(student, Folder(halves), settings, part=(2, 2))
    run = taught("run", **{"distillation.stored": str(halves)})
    with pytest.raises(UserError, match="lacks 10 of its files .the first is 00000.: run `corpusmill teach"):
        train(TrainConfig.model_validate(run))
    assert store(student, Folder(halves), settings).files == 10
    assert sorted(file.name for file in whole.iterdir()) == sorted(file.name for file in halves.iterdir())
    assert store(student, Folder(halves), settings).files == 0
    more = store(student, Folder(halves), settings, sequences=22 * student.data.global_batch - 1)
    assert more.files == 2 and more.about.sequences == 22 * student.data.global_batch
    # A damaged file ends the run with its name.
    file = sorted(halves.glob("00003-*"))[0]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(WorkError, match="00003-.*: is damaged: delete it and run"):
        train(TrainConfig.model_validate(run))


def test_what_does_not_fit_is_refused(taught: Make, tmp_path: Path) -> None:
    out = Folder(tmp_path / "logits")
    student, settings = TrainConfig.model_validate(taught("run")), StoreSettings(kept="top", count=4)
    store(student, out, settings)
    for more, message in (
        ({"seed": 5}, "was stored for other data, or another order"),
        ({"data.sequence_length": 8}, "was stored for other data, or another order"),
        ({"model.vocab_multiple": 64}, "the teacher's head has 96 rows, the student's 128"),
        ({"distillation.temperature": 2.0}, "is of temperature 1: set distillation.temperature to it"),
        ({"schedule.steps": 21}, r"has \d+ sequences, and 21 steps read \d+: store more of them"),
        ({"distillation.stored": str(tmp_path)}, "has no logits.json: write it with"),
    ):
        own = taught("other", **{"distillation.stored": out.url, **more})
        with pytest.raises(UserError, match=message):
            train(TrainConfig.model_validate(own))
    with pytest.raises(UserError, match="has other distributions, by settings: name another folder"):
        store(student, out, StoreSettings(kept="top", count=5))
    with pytest.raises(UserError, match="--top 97: is more than the 96 tokens"):
        store(student, Folder(tmp_path / "a"), StoreSettings(kept="top", count=97))
    ramp = TrainConfig.model_validate(taught("ramp", **{"data.batch_ramp": {"5": 4}}))
    with pytest.raises(UserError, match="cannot be of data.stages or ramps"):
        store(ramp, Folder(tmp_path / "b"), settings)
    none = TrainConfig.model_validate({**taught("none"), "distillation": None})
    with pytest.raises(UserError, match="there is no teacher"):
        store(none, Folder(tmp_path / "c"), settings)


def test_the_command(taught: Make, tmp_path: Path) -> None:
    path = tmp_path / "student.yaml"
    path.write_text(json.dumps(taught("run")), encoding="utf-8")
    out = tmp_path / "out"
    call = ("teacher-logits", str(path), "--out", str(out), "--top", "8", "--sequences", "3")
    result = command(*call)
    assert "bytes a label" in result and "mean probability of the tokens that are kept: 0." in result
    about = StoredLogits.model_validate_json((out / STORED).read_text())
    assert about.settings.count == 8 and about.sequences >= 3
    assert json.loads(command(*call, "--json"))["files"] == 0
