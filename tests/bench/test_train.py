"""The trainer's benches: the plain loop is the same model and the same steps; every path of the GPU's bench runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import _gpu_case, _gpu_checks, _gpu_memory, _plain_gpt, train, train_gpu
from bench._gpu_loops import Train
from bench._gpu_models import MODELS, Case, NotHere, estimate, flops_per_token
from bench._train_ours import make_state, memory_batch, whole
from corpusmill.common.config import load
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.model import decoder
from corpusmill.train.step import train_step
from tests.conftest import ROOT

TINY = train.Size(
    {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "qk_norm": True},
    512,
    32,
    rows=4,
    micro=2,
    rounds=2,
    states=1,
)


def test_the_plain_loop_takes_the_same_steps() -> None:
    state = make_state(
        TINY.model,
        96,
        rows=4,
        micro=2,
        length=16,
        schedule={"steps": 10_000, "kind": "constant", "warmup_steps": 0},
    )
    plain = _plain_gpt.PlainGPT(
        _plain_gpt.Sizes(128, 32, 2, 4, 2, state.config.model.hidden, 16, qk_norm=True)
    )
    plain.load_state_dict(whole(state).state_dict())
    optimizer = _plain_gpt.make_adamw(plain)
    for group in optimizer.param_groups:  # by default no embedding decays in `train`
        if len(group["params"][0].shape) > 1:
            group["weight_decay"] = 0.0
    for group in state.optimizer.param_groups:
        group["weight_decay"] = 0.0
    for number in range(3):
        batch = memory_batch(4, 16, 96, number=number)
        train_step(state, batch, 64.0)
        _plain_gpt.step(
            plain, optimizer, zip(batch["tokens"].split(2), batch["labels"].split(2), strict=True), 2, 0
        )
    for name, value in whole(state).state_dict().items():
        torch.testing.assert_close(plain.state_dict()[name], value, atol=2e-5, rtol=1e-4, msg=name)


def test_the_cpu_bench_measures_every_loop() -> None:
    found = train.measure(TINY)
    assert found.missing is None and found.difference < 1e-6
    assert {len(seconds) for seconds in found.seconds.values()} == {2}
    assert found.ratio(train.PLAIN) == (1.0, 1.0, 1.0)
    assert found.stall is not None and 0 <= found.stall < 1
    assert [line.split("|")[2].strip() for line in train.lines(TINY, found)] == [
        train.MEMORY,
        train.PLAIN,
        train.LOADER,
    ]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.train_gpu", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)


@pytest.mark.slow
def test_every_case_of_the_gpu_bench_runs_at_tiny_shapes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    decoded_products: None,
) -> None:
    """In this process, for the sake of time; the next test has a case in its own."""
    monkeypatch.setattr(decoder, "token_losses", decoder.token_losses)  # compiled by the bench: put back

    def here(case: Case, _seconds: float) -> dict[str, Any]:
        try:
            return dict(json.loads(json.dumps(_gpu_case.run(case))))
        except NotHere as reason:
            return {"missing": str(reason)}

    monkeypatch.setattr(train_gpu, "alone", here)
    options = {"device": "cpu", "compile": "eager", "seconds": 0.0, "profile": True}
    found = train_gpu.measure(
        ["tiny"], list(train_gpu.CASES), options, time.monotonic() + 600, tmp_path / "a.json"
    )
    assert found == json.loads((tmp_path / "a.json").read_text())
    measured = {row["case"]: row for row in found if "missing" not in row}
    assert {"bf16", "plain", "cudnn", "muon", "loader", "eager"} <= set(measured)
    for row in measured.values():
        assert (
            row["tokens_per_second"] > 0 and abs(row["loss"] - 5.75) < 0.3
        )  # ln 300, and what 4 steps learn
        assert row["parameters"] == measured["plain"]["parameters"] or row["case"] == "torchtitan"
    assert len(measured["bf16"]["tried"]) >= 1 and measured["plain"]["micro"] == measured["bf16"]["micro"]
    assert "(idle)" in capsys.readouterr().err
    assert len(train_gpu.table(found)) == 2 + len(train_gpu.CASES)


def test_a_case_runs_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def printed(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["train_gpu", *map(str, arguments)])
        train_gpu.main()
        return capsys.readouterr().out

    monkeypatch.setattr(_gpu_case, "run", lambda _: pytest.fail("ran in this process"))
    first = printed("--smoke", "--cases", "bf16", "--checks", "experts", "--json", tmp_path / "a.json")
    assert "| tiny | train, bf16, AdamW | " in first
    assert "| experts | passed | " in first and "1 of 1 passed." in first
    assert printed("--from", tmp_path / "a.json", "--json", tmp_path / "b.json") == first
    assert (tmp_path / "b.json").read_text() == (tmp_path / "a.json").read_text()


def test_a_check_that_fails_or_cannot_run_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a device, where there is none."""
    until = time.monotonic() + 300
    rows = _gpu_checks.measure(["experts"], until, stand_in=False) + _gpu_checks.measure(["fp8"], 0.0, False)
    assert [row["outcome"] for row in rows] == ["failed", "not run"]
    assert "CUDA" in rows[0]["why"] and "--budget" in rows[1]["why"]
    assert _gpu_checks.table(rows)[-1] == "0 of 2 passed."
    monkeypatch.setattr(train_gpu, "read", lambda _: rows)
    monkeypatch.setattr(sys, "argv", ["train_gpu", "--from", "a.json"])
    with pytest.raises(SystemExit, match="1"):
        train_gpu.main()
    assert "| experts | failed | " in capsys.readouterr().out


def test_without_a_gpu_it_says_so() -> None:
    done = bench("--models", "124m")
    assert done.returncode == 0 and done.stdout.startswith("Not measured: no CUDA device.")
    assert "not known: 125m" in bench("--models", "125m").stderr


def test_what_does_not_fit_is_tried_with_less(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Small(Train):
        def __init__(self, case: Case, micro: int, rows: int) -> None:
            made.append(micro)
            super().__init__(case, micro, rows)
            if micro > 1:
                raise torch.OutOfMemoryError("a device of one sequence")

    monkeypatch.setattr("bench._gpu_loops.LOOPS", {"train": Small})
    case = Case("tiny", device="cpu", compile="", seconds=0.0)
    row = _gpu_case.run(case)
    assert (row["micro"], row["tried"].keys()) == (1, {1, 2}) and row["tried"][2] == 0.0
    assert _gpu_case.run(case._replace(micro=4))["micro"] == 1
    assert made == [1, 2, 1, 4, 2, 1]


def row(case: str, speed: float | None, **more: Any) -> dict[str, Any]:
    if speed is None:
        return {"model": "124m", "case": case, "missing": "out of memory"}
    return {
        **Case("124m")._asdict(), "case": case, "tokens_per_second": speed, "mfu": 0.5, "micro": 8, "length": 1024,
        "peak_bytes": 2**31, **more,
    }  # fmt: skip


def test_rows_add_up_and_stand_beside_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_gpu, "estimate", lambda _case, _micro: 2**30)
    first = train_gpu.merged(
        [row("plain", 50.0), row("bf16", None)], [row("bf16", 100.0), row("plain", None)]
    )
    lines = train_gpu.table(first)
    assert lines[2].endswith("| 8 x 1024 | 100 | 50.0% | 2.000 | 2.0 | 1.0 (+100.0%) |")
    assert "| 50 | 50.0% | 1.000 |" in lines[3] and len(lines) == 4
    assert "not measured: out of memory" in train_gpu.table([row("fp8", None)])[2]


KEPT = json.loads(train_gpu.KEPT.read_text(encoding="utf-8"))
OURS = [row for row in KEPT if row.get("loop") == "train" and "missing" not in row]


@pytest.mark.parametrize("row", OURS, ids=lambda row: f"{row['model']} {row['case']}")
def test_the_peak_of_a_model_on_a_gpu_is_what_is_estimated(row: dict[str, Any]) -> None:
    case = Case(**{name: row[name] for name in Case._fields})
    assert row["peak_bytes"] == pytest.approx(estimate(case, row["micro"]), rel=0.05)


@pytest.mark.parametrize("row", [row for row in KEPT if "memory" in row], ids=lambda row: row["memory"])
def test_the_peak_of_a_config_on_a_gpu_is_what_is_estimated(row: dict[str, Any]) -> None:
    assert row["peak_bytes"] == pytest.approx(_gpu_memory.estimate(row["memory"]), rel=0.05)


def test_what_was_kept_is_of_many_configs() -> None:
    assert len(OURS) >= 4 and sum("memory" in row for row in KEPT) >= 10
    assert {row["outcome"] for row in KEPT if "check" in row} <= {"passed", "not run"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device")
def test_a_config_that_cannot_be_measured_says_why() -> None:
    (row,) = _gpu_memory.measured(["124m-full"], 300.0)
    assert row["memory"] == "124m-full" and row["missing"]
    assert "not measured: " in _gpu_memory.table([row])[-1] and _gpu_memory.table(OURS) == []


def test_a_later_run_has_the_micro_batch_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int | None] = []
    monkeypatch.setattr(train_gpu, "alone", lambda case, _: {"missing": str(seen.append(case.micro))})
    (tmp_path / "a.json").write_text(json.dumps([row("bf16", 100.0)]))
    train_gpu.measure(["124m", "350m"], ["muon"], {}, time.monotonic() + 600, tmp_path / "a.json")
    assert seen == [8, None]


@pytest.mark.parametrize("name", ["124m", "350m", "1.5b"])
def test_models_are_those_of_the_presets(name: str) -> None:
    config, size = load(TrainConfig, ROOT / f"configs/train/{name}.yaml"), MODELS[name]
    assert (config.model.dim, config.model.layers, config.model.heads) == (size.dim, size.layers, size.heads)
    assert config.data.sequence_length == size.length and not size.rows % max(size.micro)
    assert 6 * int(float(name[:-1]) * (1e9 if name[-1] == "b" else 1e6)) == pytest.approx(
        flops_per_token(size), rel=0.2
    )
    assert estimate(Case(name), 1) > 16 * 1e8
