"""What a run's electricity comes to: measured where the machine has counters, estimated elsewhere (`log.energy`).

The host: Linux's RAPL counters of its processor packages and memory, which are one for the whole machine, so that one process a machine
counts them; else the CPU seconds of each process times `WATTS_PER_CORE`. A GPU: NVML's counter of total energy, if `nvidia-ml-py` is installed;
else its TDP times the time. Counters see whatever else runs on the machine; fans, disks, network and the loss of power supplies are in
none (Henderson et al. 2020).
"""

from __future__ import annotations

import importlib
import os
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from corpusmill.train.model.flops import gpu_seen

if TYPE_CHECKING:
    from corpusmill.schemas.log import LogConfig
    from corpusmill.train.parallel.mesh import World

RAPL = Path("/sys/class/powercap")
WATTS_PER_CORE = 10.0  # of a busy core of a server, with its share of caches and memory
WATTS_PER_GPU = 400.0  # of one that is not in the table of `corpusmill.train.model.flops`
SECONDS = (
    30.0  # between two readings at most: RAPL's counters begin again at 0, after some minutes at the earliest
)
JOULES_PER_KWH = 3.6e6
SOURCES = ("rapl", "nvml", "estimate")


class Rapl:
    """The counters of a machine's packages and memory in microjoules, under `root`; read every `SECONDS` by a thread of their own."""

    def __init__(self, zones: dict[Path, int]) -> None:
        self._ranges, self._lock, self._sum, self._lost = zones, threading.Lock(), 0.0, False
        self._last = {zone: _number(zone / "energy_uj") for zone in zones}
        threading.Thread(target=_keep_reading, args=(weakref.ref(self),), name="rapl", daemon=True).start()

    @classmethod
    def opened(cls, root: Path) -> Rapl | None:
        """None where there are no such counters, or this user may not read them."""
        zones = {}
        try:
            for zone in sorted(root.glob("intel-rapl:*")):
                name = (zone / "name").read_text().strip()
                if name.startswith("package") or name == "dram":  # others are parts of a package, or hold it
                    zones[zone] = _number(zone / "max_energy_range_uj")
            return cls(zones) if zones else None
        except (OSError, ValueError):
            return None

    def read(self) -> None:
        """Add what the counters have counted since the last reading."""
        with self._lock:
            try:
                now = {zone: _number(zone / "energy_uj") for zone in self._last}
            except (OSError, ValueError):
                self._lost = True
                return
            for zone, value in now.items():
                apart = value - self._last[zone]
                self._sum += apart if apart >= 0 else apart + self._ranges[zone]
            self._last = now

    def joules(self) -> float | None:
        """Since the last call; None once a counter cannot be read any more."""
        self.read()
        with self._lock:
            found, self._sum = self._sum / 1e6, 0.0
            return None if self._lost else found


def _number(file: Path) -> int:
    return int(file.read_text())


def _keep_reading(counters: weakref.ref[Rapl]) -> None:
    while True:
        time.sleep(SECONDS)
        found = counters()
        if found is None:
            return
        found.read()
        del found


class Nvml:
    """The counter of one GPU, in millijoules."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._last = int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))

    @classmethod
    def opened(cls, uuid: str) -> Nvml | None:
        """Of the GPU with this UUID (`GPU-…`). None without the package, or where the GPU or its driver has no such counter."""
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return None
        try:
            nvml.nvmlInit()
            return cls(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
        except nvml.NVMLError:
            return None

    def joules(self) -> float | None:
        """Since the last call; None if it cannot be read any more, or has begun again."""
        try:
            now = int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._nvml.NVMLError:
            return None
        apart, self._last = now - self._last, now
        return apart / 1e3 if apart >= 0 else None


class Energy:
    """Of a run, through all restarts: `kwh`, and where they are from. In every process."""

    def __init__(self, config: LogConfig, device: torch.device) -> None:
        self.kwh, self.sources, self._intensity, self._device = (
            0.0,
            set[str](),
            config.carbon_intensity,
            device,
        )
        self._counts_machine = os.environ.get("LOCAL_RANK", "0") == "0"
        self._rapl = Rapl.opened(RAPL)
        self._nvml = None
        if device.type == "cuda":
            self._nvml = Nvml.opened(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        self._cpu, self._time = time.process_time(), time.monotonic()

    def passed(self, world: World) -> None:
        """Add what all processes have used since the last call. Collective."""
        cpu, now = time.process_time(), time.monotonic()
        host, gpu = self._host(cpu - self._cpu), self._gpu(now - self._time)
        self._cpu, self._time = cpu, now
        found = torch.zeros(1 + len(SOURCES), dtype=torch.float64)
        for joules, source in (host, gpu):
            found[0] += joules
            if source:
                found[1 + SOURCES.index(source)] += 1
        joules, *counted = world.total(found).tolist()
        self.kwh += joules / JOULES_PER_KWH
        self.sources |= {source for source, count in zip(SOURCES, counted, strict=True) if count}

    def _host(self, cpu_seconds: float) -> tuple[float, str]:
        if self._rapl is not None:
            found = self._rapl.joules()
            if found is not None:
                return found * self._counts_machine, "rapl"
            self._rapl = None
        return cpu_seconds * WATTS_PER_CORE, "estimate"

    def _gpu(self, seconds: float) -> tuple[float, str]:
        if self._device.type != "cuda":
            return 0.0, ""
        if self._nvml is not None:
            found = self._nvml.joules()
            if found is not None:
                return found, "nvml"
            self._nvml = None
        gpu = gpu_seen(torch.cuda.get_device_name(self._device))
        return seconds * (gpu.watts if gpu else WATTS_PER_GPU), "estimate"

    def row(self) -> dict[str, Any]:
        """What a row of metrics has of it, since the start of the run."""
        carbon = {} if self._intensity is None else {"carbon_kg": round(self.kwh * self._intensity / 1e3, 9)}
        return {"energy_kwh": round(self.kwh, 9), **carbon}

    def result(self) -> dict[str, Any]:
        """What result.json has of it."""
        return {**self.row(), "energy_source": "+".join(one for one in SOURCES if one in self.sources)}

    def saved(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"kwh": self.kwh, "sources": sorted(self.sources)}

    def load(self, saved: dict[str, Any] | None) -> None:
        """Continue with what a checkpoint has; what a rollback repeats was used all the same."""
        if saved is not None and saved["kwh"] >= self.kwh:
            self.kwh, self.sources = float(saved["kwh"]), self.sources | set(saved["sources"])
