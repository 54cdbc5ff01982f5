"""Energy of a run: counters that wrap, cannot be read or vanish, one count a machine, and a sum that restarts continue."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.schemas.log import LogConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import trainer
from corpusmill.train.log import energy
from corpusmill.train.log.dashboard import write
from corpusmill.train.log.energy import Energy
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.parallel.mesh import World
from corpusmill.train.run_folder import open_run
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.test_resume import Crash, crash_at, run

Make = Callable[..., dict[str, Any]]
RANGE = 65_532_610_987  # of a counter, as processors have it


def counter(root: Path, zone: str, name: str, value: int) -> Path:
    """A zone of RAPL as Linux shows it."""
    folder = root / zone
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(name + "\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
    (folder / "energy_uj").write_text(f"{value}\n")
    return folder / "energy_uj"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(energy, "RAPL", tmp_path / "powercap")
    (tmp_path / "powercap").mkdir()
    return tmp_path / "powercap"


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The CPU seconds of this process, set by the test."""
    seconds = [0.0]
    monkeypatch.setattr(energy.time, "process_time", lambda: seconds[0])
    return seconds


def of_cpu(**settings: Any) -> Energy:
    return Energy(LogConfig(energy=True, **settings), torch.device("cpu"))


def joules(found: Energy) -> float:
    found.passed(World())
    return found.kwh * 3.6e6


def test_packages_and_memory_are_counted_and_what_is_part_of_them_is_not(root: Path) -> None:
    counted = [counter(root, f"intel-rapl:{n}", f"package-{n}", 100) for n in (0, 1)]
    counted.append(counter(root, "intel-rapl:0:1", "dram", RANGE - 1_000_000))
    others = [
        counter(root, "intel-rapl:0:0", "core", 0), counter(root, "intel-rapl:2", "psys", 0),
        counter(root, "intel-rapl-mmio:0", "package-0", 0),
    ]  # fmt: skip
    found = of_cpu(carbon_intensity=400)
    assert joules(found) == 0
    for file in others:
        file.write_text("9000000000")
    counted[0].write_text(str(100 + 5_000_000))
    counted[1].write_text(str(100 + 7_000_000))
    counted[2].write_text("2000000")  # it has begun again
    assert joules(found) == pytest.approx(5 + 7 + 3)
    counted[0].write_text(str(100 + 3_600_000_000))
    assert joules(found) == pytest.approx(3600 + 7 + 3)
    assert found.result() == {
        "energy_kwh": pytest.approx(3610 / 3.6e6, abs=1e-9), "carbon_kg": pytest.approx(3610 / 3.6e6 * 0.4, abs=1e-9), "energy_source": "rapl",
    }  # fmt: skip


def test_a_counter_that_wraps_between_rows_is_read_often_enough(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "SECONDS", 0.005)
    file, before = counter(root, "intel-rapl:0", "package-0", 0), set(threading.enumerate())
    found = of_cpu()
    rapl, value, total = found._rapl, 0, 0
    assert rapl is not None
    for _ in range(5):
        value, total = (value + RANGE // 2) % RANGE, total + RANGE // 2
        (root / "new").write_text(str(value))
        (root / "new").replace(file)
        until = time.monotonic() + 5
        while rapl._last[file.parent] != value and time.monotonic() < until:
            time.sleep(0.005)
    assert joules(found) == pytest.approx(total / 1e6)  # two and a half times its range
    del rapl, found
    gc.collect()
    until = time.monotonic() + 5
    while set(threading.enumerate()) - before and time.monotonic() < until:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize("broken", ["no folder", "unreadable", "no number", "no range", "no package"])
def test_without_counters_cores_are_estimated(broken: str, root: Path, cpu: list[float]) -> None:
    file = counter(root, "intel-rapl:0", "package-0", 1)
    if broken == "no folder":
        file.parent.rename(root / "elsewhere")
    elif broken == "unreadable":
        file.unlink()
        file.mkdir()
    elif broken == "no number":
        file.write_text("")
    elif broken == "no range":
        (file.parent / "max_energy_range_uj").unlink()
    else:
        (file.parent / "name").write_text("psys")
    found = of_cpu()
    cpu[0] = 30.0
    assert joules(found) == pytest.approx(30 * energy.WATTS_PER_CORE)
    cpu[0] = 36.0
    assert joules(found) == pytest.approx(36 * energy.WATTS_PER_CORE)
    assert found.result()["energy_source"] == "estimate" and "carbon_kg" not in found.row()


def test_a_counter_that_vanishes_is_estimated_from_then_on(root: Path, cpu: list[float]) -> None:
    file = counter(root, "intel-rapl:0", "package-0", 0)
    found = of_cpu()
    cpu[0] = 10.0
    file.write_text("4000000")
    assert joules(found) == pytest.approx(4)
    file.unlink()
    cpu[0] = 13.0
    assert joules(found) == pytest.approx(4 + 3 * energy.WATTS_PER_CORE)
    file.write_text("900000000")  # too late: what it counted meanwhile is not known
    cpu[0] = 14.0
    assert joules(found) == pytest.approx(4 + 4 * energy.WATTS_PER_CORE)
    assert found.result()["energy_source"] == "rapl+estimate"


class Failing(Exception):
    pass


def nvml(readings: list[int | None]) -> ModuleType:
    """A stand-in for nvidia-ml-py with one GPU; None: the driver fails."""

    def total(handle: str) -> int:
        assert handle == "of GPU-0123"
        found = readings.pop(0)
        if found is None:
            raise Failing
        return found

    module = ModuleType("pynvml")
    vars(module).update(
        NVMLError=Failing, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: f"of {uuid}",
        nvmlDeviceGetTotalEnergyConsumption=total,
    )  # fmt: skip
    return module


@pytest.mark.parametrize(
    ("readings", "wanted", "source"),
    [
        ([1000, 6000, 9000], (5.0, 8.0), "rapl+nvml"),
        ([1000, 6000, None], (5.0, 5.0 + 700), "rapl+nvml+estimate"),
        ([1000, 6000, 10], (5.0, 5.0 + 700), "rapl+nvml+estimate"),  # the driver was loaded again
        ([None], (700.0, 1400.0), "rapl+estimate"),
        (None, (700.0, 1400.0), "rapl+estimate"),
    ],
)
def test_a_gpu_by_its_counter_or_its_tdp(
    readings: list[int | None] | None,
    wanted: tuple[float, float],
    source: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = counter(root, "intel-rapl:0", "package-0", 0)
    monkeypatch.setitem(sys.modules, "pynvml", None if readings is None else nvml(readings))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="0123"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    now = [50.0]
    monkeypatch.setattr(energy.time, "monotonic", lambda: now[0])
    found = Energy(LogConfig(energy=True), torch.device("cuda"))
    for number, total in enumerate(wanted, 1):
        now[0] += 1.0
        file.write_text(str(number * 2_000_000))
        assert joules(found) == pytest.approx(total + 2 * number)
    assert found.result()["energy_source"] == source


def ticking(file: str | Path, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """The first process's steps use a joule each."""
    place, healthy = Path(file), trainer.train_step

    def step(state: Any, *rest: Any, **more: Any) -> Any:
        found = healthy(state, *rest, **more)
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            fresh = place.with_name("new")
            fresh.write_text(str((int(place.read_text()) + 1_000_000) % RANGE))
            fresh.replace(place)
        return found

    if monkeypatch is None:
        trainer.train_step = step
    else:
        monkeypatch.setattr(trainer, "train_step", step)


def test_a_run_sums_it_through_restarts(
    config: Make, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = counter(root, "intel-rapl:0", "package-0", RANGE - 3_000_000)
    ticking(file, monkeypatch)
    made = config(**{"log.energy": True, "log.carbon_intensity": 500, "log.every": 2})
    with monkeypatch.context() as patch:
        crash_at(patch, 12)
        with pytest.raises(Crash):
            run(made)
    file.write_text("5000000")  # meanwhile, others use it
    result = run(made)
    rows = read_metrics(Folder(tmp_path / "run"))
    # Rows of steps 2, 4, ... up to the checkpoint of step 10; the two steps after it were lost with their row.
    found = {row["step"]: row["energy_kwh"] * 3.6e6 for row in rows}
    assert found == {step: pytest.approx(step, abs=0.01) for step in range(2, 21, 2)}
    assert result["energy_kwh"] == rows[-1]["energy_kwh"] and result["energy_source"] == "rapl"
    assert (
        result["carbon_kg"] == pytest.approx(20 / 3.6e6 * 0.5, abs=1e-9)
        and rows[-1]["carbon_kg"] == result["carbon_kg"]
    )
    assert run(made) == result  # nothing more is counted
    page = Path(write(*open_run(tmp_path / "run"), None)["page"]).read_text()
    assert "kg CO2e" in page and '"Energy"' in page


def test_without_the_key_nothing_is_measured(config: Make, root: Path, tmp_path: Path) -> None:
    counter(root, "intel-rapl:0", "package-0", 0)
    result = run(config(**{"schedule.steps": 5}))
    text = (
        (tmp_path / "run/metrics.jsonl").read_text()
        + json.dumps(result)
        + (tmp_path / "run/config.json").read_text()
    )
    assert not any(word in text for word in ("energy", "carbon"))
    with pytest.raises(
        ValueError, match=r"carbon_intensity: has no effect without energy: set log.energy to true"
    ):
        LogConfig(carbon_intensity=3)


def counting(file: str, root: str) -> None:
    """`corpusmill train` with counters under `root`."""
    energy.RAPL = Path(root)
    if (Path(root) / "intel-rapl:0").exists():
        ticking(Path(root) / "intel-rapl:0/energy_uj")
    train(load(TrainConfig, file))


@pytest.mark.parametrize("counted", [True, False])
def test_two_processes_of_a_machine_count_it_once(
    counted: bool, write_config: Callable[..., Path], root: Path, tmp_path: Path
) -> None:
    if counted:
        counter(root, "intel-rapl:0", "package-0", 0)
    file = write_config(
        **{"log.energy": True, "schedule.steps": 6, "schedule.warmup_steps": 1, "validation.every": None}
    )
    done = launch(2, f"{__name__}:counting", file, root)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run/result.json").read_text())
    if counted:
        assert (
            result["energy_kwh"] * 3.6e6 == pytest.approx(6, abs=0.01) and result["energy_source"] == "rapl"
        )
    else:
        spent = result["energy_kwh"] * 3.6e6 / energy.WATTS_PER_CORE  # CPU seconds of both
        assert 0 < spent < done.seconds and result["energy_source"] == "estimate"
