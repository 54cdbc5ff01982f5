"""What the golden test compares; `python -m tests.golden.record` writes the values of the present version.

`published.json`: checksum of every file of the quick start's run; manifests without the times that they hold.
`training.json`: losses of 30 steps, and of every weight (sum, norm, first value), in four layouts.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from safetensors.numpy import load_file

from tests.forks import launch

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
RECIPE, CONFIG = "configs/recipes/quickstart.yaml", "bench/configs/quickstart-adamw.yaml"
PUBLISHED, TRAINING = HERE / "published.json", HERE / "training.json"
# Not compared: where a run was made, the times in manifests, and the checksums of what holds times.
VERSION = "0.1.0"
PLACES = {"inputs.json", "resources.html", "profile.json"}
TIMES = {"seconds", "resources", "checksums", "seal"}
SMALL = ["schedule.steps=30", "schedule.warmup_steps=5", "model.dim=64", "model.ffn_dim=160", "log.every=1",
         "log.tensorboard=false", "checkpoint.every=30", "validation.every=30",
         "validation.tokens=512", "threads=1"]  # fmt: skip
LAYOUTS: dict[str, tuple[int, list[str]]] = {
    "one process": (1, []),
    "ZeRO 3 x 2": (2, ["parallel.zero=3", "data.micro_batch=4"]),
    "tensor 2": (2, ["parallel.tensor=2"]),
    "pipeline 2": (2, ["parallel.pipeline=2", "data.micro_batch=2"]),
}
UNDER_TORCHRUN = "ZeRO 3 x 2"  # the others' processes are forked


def command(*arguments: str | Path, processes: int = 1, cwd: Path = ROOT, path: Path | None = None) -> None:
    """`corpusmill ARGUMENTS` in the folder `cwd`, in several processes under torchrun; `path` is looked in for packages first."""
    corpusmill = [str(Path(sys.executable).with_name("corpusmill")), *map(str, arguments)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    whole = corpusmill if processes == 1 else [*launch, f"--nproc-per-node={processes}", *corpusmill]
    paths = [str(path) if path else "", os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(whole, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(whole)}\n{done.stdout}\n{done.stderr}"


def _forked(processes: int, *arguments: str) -> None:
    """The same in processes that have everything imported: most of the time of so short a training is imports."""
    done = launch(processes, "corpusmill", *arguments)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"


def _of_version(folder: Path) -> Path:
    """A folder that makes the package one of `VERSION`, which records, report and card hold: it changes with every commit."""
    metadata = folder / f"metadata/corpusmill-{VERSION}.dist-info/METADATA"
    metadata.parent.mkdir(parents=True, exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: corpusmill\nVersion: {VERSION}\n")
    return metadata.parents[1]


def make_run(folder: Path) -> Path:
    """The quick start's run below `folder`, made in it with paths as a user has them: the card's path is part of a key."""
    for name in ("configs", "examples"):
        (folder / name).symlink_to(ROOT / name)
    command("run", RECIPE, cwd=folder, path=_of_version(folder))
    return folder / "runs/quickstart"


def published(run: Path) -> dict[str, str]:
    """File of the run -> xxh3_128 of what it holds besides times."""
    found = {}
    card = run.parents[1] / "data_cards/quickstart.md"
    for file in [*sorted(run.rglob("*")), card]:
        name = file.name if file == card else file.relative_to(run).as_posix()
        if not file.is_file() or file.name in PLACES or {"scratch", "units"} & set(Path(name).parts):
            continue
        data = file.read_bytes()
        if file.name.endswith("manifest.json") or "parts" in Path(name).parts:
            data = json.dumps(_timeless(json.loads(data)), sort_keys=True).encode()
        found[name] = xxhash.xxh3_128_hexdigest(data)
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def learned(shards: Path, folder: Path, layout: str) -> dict[str, Any]:
    """Losses of 30 steps in this layout, and what its weights are then."""
    processes, settings = LAYOUTS[layout]
    sets = [f"data.shards={shards}", f"output={folder}/train", *SMALL, *settings]
    options = [part for item in sets for part in ("--set", item)]
    if layout == UNDER_TORCHRUN:
        command("train", CONFIG, *options, processes=processes)
    else:
        _forked(processes, "train", CONFIG, *options)
    _forked(1, "export", f"{folder}/train", f"{folder}/model")
    rows = [json.loads(line) for line in (folder / "train/metrics.jsonl").read_text().splitlines()]
    weights = load_file(folder / "model/model.safetensors")
    return {
        "losses": [row["loss"] for row in rows if "loss" in row],
        "weights": {
            name: [float(value.sum(dtype=np.float64)), _norm(value), float(value.flat[0])]
            for name, value in sorted(weights.items())
        },
    }  # fmt: skip


def _norm(value: np.ndarray) -> float:
    """The square root of the sum of squares. `np.linalg.norm` leaves the sum to BLAS, whose number of threads changes it."""
    return float(np.sqrt(np.square(value, dtype=np.float64).sum()))


def machine() -> str:
    """What rounding depends on: on an equal one, values are equal to the bit. By family, model and instructions, which kernels
    are chosen by: several generations share a name."""
    found: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        found[name.strip()] = value.strip()
    flags = sorted(
        {"avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"}
        & {*found.get("flags", "").split()}
    )
    cpu = [
        found.get("model name", platform.processor()),
        found.get("cpu family", ""),
        found.get("model", ""),
        *flags,
    ]
    return f"{' '.join(cpu)}, torch {torch.__version__}, numpy {np.__version__}"


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        run = make_run(Path(place))
        PUBLISHED.write_text(json.dumps(published(run), indent=1) + "\n", encoding="utf-8")
        found = {name: learned(run / "shards", Path(place) / name, name) for name in LAYOUTS}
    TRAINING.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
