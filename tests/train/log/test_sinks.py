"""Weights & Biases, if it is there: one run however often it is taken up, offline without a key, never in the way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.metrics import flatten
from corpusmill.train.log.sinks import open_log
from corpusmill.train.trainer import train

Make = Callable[..., dict[str, Any]]


class Fake(ModuleType):
    """The part of the package that we call."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.inits: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.metrics: list[tuple[str, dict[str, Any]]] = []
        self.finished = 0

    def init(self, **options: Any) -> Fake:
        self.inits.append(options)
        return self

    def define_metric(self, name: str, **options: Any) -> None:
        self.metrics.append((name, options))

    def log(self, row: dict[str, Any]) -> None:
        self.logged.append(row)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    fake = Fake()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    return fake


def test_a_run_logs_its_rows_flat(wandb: Fake, config: Make) -> None:
    steps = {"schedule.steps": 4, "schedule.warmup_steps": 1}
    train(TrainConfig.model_validate(config(**{"log.wandb": True, **steps})))
    assert [row["step"] for row in wandb.logged] == [1, 2, 3, 4] and wandb.finished == 1
    assert {"loss", "loss_per_source/wiki", "attention_entropy/layer_0"} <= set(wandb.logged[0])
    assert ("*", {"step_metric": "step"}) in wandb.metrics
    assert wandb.inits[0]["config"]["schedule"]["steps"] == 4 and wandb.inits[0]["name"] == "tiny"


def test_a_run_taken_up_again_is_the_same_run_there(wandb: Fake, config: Make, tmp_path: Path) -> None:
    settings = TrainConfig.model_validate(config(**{"log.wandb": True}))
    for step in (0, 5):
        open_log(Folder(tmp_path / "run"), settings, step, []).close()
    other = settings.model_copy(update={"output": str(tmp_path / "other")})
    open_log(Folder(other.output_url), other, 0, []).close()
    ids = [options["id"] for options in wandb.inits]
    assert ids[0] == ids[1] != ids[2] and {options["resume"] for options in wandb.inits} == {"allow"}
    open_log(Folder(tmp_path / "run"), settings, 20, []).close()  # nothing is left to do: nothing is opened
    assert len(wandb.inits) == 3


@pytest.mark.parametrize(("key", "mode"), [(None, "offline"), ("k", None)])
def test_without_a_key_it_is_offline(
    wandb: Fake,
    config: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str | None,
    mode: str | None,
) -> None:
    if key:
        monkeypatch.setenv("WANDB_API_KEY", key)
    open_log(
        Folder(tmp_path / "run"), TrainConfig.model_validate(config(**{"log.wandb": True})), 0, []
    ).close()
    assert wandb.inits[0].get("mode") == mode and wandb.inits[0]["dir"] == str(tmp_path / "run")


def test_a_service_that_fails_does_not_stop_the_run(
    wandb: Fake,
    config: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(**_: Any) -> Fake:
        raise RuntimeError("no answer\nfrom the server")

    monkeypatch.setattr(wandb, "init", fail)
    open_log(
        Folder(tmp_path / "run"), TrainConfig.model_validate(config(**{"log.wandb": True})), 0, []
    ).close()
    assert "log.wandb: no answer; continuing without it" in capsys.readouterr().err


def test_not_installed_is_one_line(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not
    with pytest.raises(
        UserError, match=r"^log\.wandb: the package wandb is not installed: pip install wandb, or set"
    ):
        train(TrainConfig.model_validate(config(**{"log.wandb": True})))


def test_flat_names_of_numbers_alone() -> None:
    row = {"step": 3, "loss": 1, "a": {"b": {"c": 2.5}, "d": None}, "word": "x"}
    assert flatten(row) == [("loss", 1.0), ("a/b/c", 2.5)]
