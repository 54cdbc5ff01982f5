"""The micro-batch that fits is found before the first step, and the run is the one configured with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint, micro_batch
from corpusmill.train.commands.train import train as command
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.micro_batch import rehearsal
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.trainer import train
from tests.forks import launch

Make = Callable[..., dict[str, Any]]
AUTO = {
    "memory.auto_micro_batch": True, "data.micro_batch": 8, "model.dropout": 0.1, "schedule.steps": 3,
    "schedule.warmup_steps": 1,
}  # fmt: skip
TIMES = ("tokens_per_second", "loader_stall", "memory_mib", "mfu")


def fail_above(monkeypatch: pytest.MonkeyPatch, rows: int) -> list[int]:
    """Stands for a device whose memory holds that many rows; the sizes that it was asked for."""
    healthy, asked = Decoder.forward, list[int]()

    def forward(self: Decoder, tokens: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        asked.append(len(tokens))
        loss = healthy(self, tokens, *rest, **more)  # which leaves gradients and sums half made
        if len(tokens) > rows and self.training:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss

    monkeypatch.setattr(Decoder, "forward", forward)
    return asked


def outcome(output: str) -> tuple[list[str], list[dict[str, Any]]]:
    found = checkpoint.load_newest(Folder(output))
    assert found is not None
    rows = [{k: v for k, v in row.items() if k not in TIMES} for row in read_metrics(Folder(output))]
    return [file.xxh3 for file in found.manifest.files if file.path.endswith(".safetensors")], rows


@pytest.mark.parametrize(("fits", "settled"), [(8, 8), (5, 4), (1, 1)])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_run_is_to_the_bit_the_one_configured_so(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fits: int,
    settled: int, kind: str,
) -> None:  # fmt: skip
    moe = {"experts": 4, "ffn_dim": 32, "bias_rate": 0.01, "first": 1}
    settings = {**AUTO, "model.moe": moe, "optimizer.kind": kind}
    train(
        TrainConfig.model_validate(
            config(
                **{**settings, "memory.auto_micro_batch": False, "data.micro_batch": settled},
                output=str(tmp_path / "set"),
            )
        )
    )
    asked = fail_above(monkeypatch, fits)
    train(TrainConfig.model_validate(config(**settings)))
    assert outcome(str(tmp_path / "run")) == outcome(str(tmp_path / "set"))
    message = capsys.readouterr().err
    assert [f"micro_batch {n} does not fit" in message for n in (8, 4, 2, 1)] == [
        n > settled for n in (8, 4, 2, 1)
    ]
    assert max(asked[asked.index(settled) :]) == settled  # never tried again
    output = checkpoint.load_newest(Folder(str(tmp_path / "run")))
    assert output is not None and output.state["config"]["data"]["micro_batch"] == settled
    train(
        TrainConfig.model_validate(config(**settings))
    )  # and it may go on with the config that it was started with


def test_where_not_one_row_fits_one_line_says_what_to_change(
    config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_above(monkeypatch, 0)
    with pytest.raises(
        WorkError, match=r"not even one sequence of 24 tokens fits .* set memory.checkpointing to full"
    ):
        train(TrainConfig.model_validate(config(**AUTO)))


def test_without_it_running_out_of_memory_is_not_hidden(
    config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_above(monkeypatch, 4)
    with pytest.raises(torch.OutOfMemoryError):
        train(TrainConfig.model_validate(config(**{**AUTO, "memory.auto_micro_batch": False})))


def test_the_rehearsal_has_two_documents_in_a_row() -> None:
    batch = rehearsal(3, 10)
    assert batch["documents"][1].tolist() == [0] * 5 + [1] * 5 and batch["tokens"].shape == (3, 10)
    assert not rehearsal(3, 10, whole=True)["documents"].any()


def out_of_memory_in_one(file: str) -> None:
    """A run in which only the second process has too little memory for four rows."""
    healthy = Decoder.forward

    def forward(self: Decoder, tokens: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if os.environ["RANK"] == "1" and len(tokens) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return healthy(self, tokens, *args, **kwargs)

    Decoder.forward = forward  # type: ignore[method-assign]  # in a process of its own
    command(file)


def out_of_memory_for_states(file: str) -> None:
    """A run in which the second process has no memory for the optimizer's states at first."""
    healthy, calls = micro_batch.prepare, list[str]()

    def prepare(optimizer: torch.optim.Optimizer) -> None:
        calls.append("")
        if os.environ["RANK"] == "1" and len(calls) == 1:
            raise torch.OutOfMemoryError("out of memory")
        healthy(optimizer)

    micro_batch.prepare = prepare  # in a process of its own
    command(file)


def test_a_rehearsal_waits_for_no_other_process(write_config: Callable[..., Path], tmp_path: Path) -> None:
    """Not even under Muon, whose steps deal out their work: the others would wait for ever."""
    settings = {**AUTO, "data.micro_batch": 4, "validation.every": None, "optimizer.kind": "muon"}
    done = launch(2, f"{__name__}:out_of_memory_for_states", write_config(**settings), timeout=120)
    assert done.returncode == 0, done.stderr
    found = checkpoint.load_newest(Folder(str(tmp_path / "run")))
    assert found is not None and found.step == 3 and found.state["config"]["data"]["micro_batch"] == 2


def test_processes_decide_together(write_config: Callable[..., Path], config: Make, tmp_path: Path) -> None:
    """Only one of two runs out of memory: both halve."""
    settings = {**AUTO, "data.micro_batch": 4, "validation.every": None}
    file = write_config(**settings)
    done = launch(2, f"{__name__}:out_of_memory_in_one", file)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("data.micro_batch 4 does not fit into the memory of cpu: trying 2") == 1
    found = checkpoint.load_newest(Folder(str(tmp_path / "run")))
    assert found is not None and found.step == 3 and found.state["config"]["data"]["micro_batch"] == 2
