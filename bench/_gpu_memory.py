"""Peak memory of training steps on a GPU beside what `corpusmill estimate` computes, for configs that keep different things.

`python -m bench._gpu_memory [NAME ...]` prints one line of JSON for each case. They share a process, since a case is cheap:
one layer is compiled, whatever the number of layers.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bench import _bare

HERE = Path(__file__).resolve().parent
GIB = 2**30
LENGTH, VOCABULARY = 1024, 50_257
SMALL: dict[str, Any] = {"dim": 768, "layers": 12, "heads": 12}
LARGER: dict[str, Any] = {"dim": 1024, "layers": 24, "heads": 16}
SPEEDRUN: dict[str, Any] = {
    "dim": 768, "layers": 12, "heads": 6, "activation": "relu2", "ffn_dim": 3072, "qk_norm": True,
    "value_embeddings": "alternate", "tie_embeddings": False,
}  # fmt: skip


class MemoryCase(NamedTuple):
    """A config; `settings` are keys of the training config beside the model's."""

    model: dict[str, Any]
    micro: int
    compile: bool
    settings: Mapping[str, Any] = MappingProxyType({})


# Layers and loss are compiled where the name does not end in `eager`.
CASES: dict[str, MemoryCase] = {
    "124m": MemoryCase(SMALL, 16, True),
    "350m": MemoryCase(LARGER, 16, True),
    "124m-full": MemoryCase(SMALL, 16, True, {"memory": {"checkpointing": "full"}}),
    "124m-selective": MemoryCase(SMALL, 16, True, {"memory": {"checkpointing": "selective"}}),
    "124m-chunked": MemoryCase({**SMALL, "loss_chunk": 4096}, 16, True),
    "speedrun-muon": MemoryCase(SPEEDRUN, 16, True, {"optimizer": {"kind": "muon"}}),
    "124m-grouped": MemoryCase({**SMALL, "kv_heads": 4}, 16, True),
    "124m-eager": MemoryCase(SMALL, 16, False),
    "350m-eager": MemoryCase(LARGER, 8, False),
    "124m-full-eager": MemoryCase(SMALL, 16, False, {"memory": {"checkpointing": "full"}}),
    "124m-selective-eager": MemoryCase(SMALL, 16, False, {"memory": {"checkpointing": "selective"}}),
    "124m-chunked-eager": MemoryCase({**SMALL, "loss_chunk": 4096}, 16, False),
    "speedrun-muon-eager": MemoryCase(SPEEDRUN, 16, False, {"optimizer": {"kind": "muon"}}),
}


def measured(names: list[str], seconds: float) -> list[dict[str, Any]]:
    """A row for each case that was done in time, in a process of its own."""
    if not names or seconds < 1:
        return []
    command = [sys.executable, "-m", "bench._gpu_memory", *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent) as process:
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, _ = process.communicate()
    return [json.loads(line) for line in printed.splitlines() if line.endswith("}")]


def measure(name: str, device: str = "cuda") -> dict[str, Any]:
    """The case's row: bytes allocated at most in its second and third step."""
    import torch

    from bench._train_ours import make_state, memory_batch
    from corpusmill.train.step import train_step

    case = CASES[name]
    rows = 2 * case.micro
    state = make_state(
        dict(case.model), VOCABULARY, rows=rows, micro=case.micro, length=LENGTH, device=device, sources=2, precision="bf16",
        compile=case.compile, **{"optimizer": {"kind": "adamw"}, **case.settings},
    )  # fmt: skip
    for number in range(3):
        if number == 1:
            torch.cuda.reset_peak_memory_stats()
        state.window.zero_()
        batch = memory_batch(rows, LENGTH, VOCABULARY, number=number, device=device)
        train_step(state, batch, float(rows * LENGTH))
    torch.cuda.synchronize()
    peak, machine = torch.cuda.max_memory_allocated(), torch.cuda.get_device_name()
    return {"memory": name, "peak_bytes": peak, "machine": machine, "torch": torch.__version__}


def estimate(name: str) -> float:
    """What `corpusmill estimate` computes for the case, bytes."""
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.optim import OptimizerConfig
    from corpusmill.train.tools.estimate.layout import Layout, shape_of
    from corpusmill.train.tools.estimate.memory import Work, memory

    case = CASES[name]
    shape = shape_of(ModelConfig.model_validate(dict(case.model)), VOCABULARY)
    optimizer = OptimizerConfig.model_validate(case.settings.get("optimizer", {"kind": "adamw"}))
    checkpointing = case.settings.get("memory", {}).get("checkpointing", "none")
    work = Work(case.micro, LENGTH, 2 * case.micro, optimizer, "bf16", checkpointing, compiled=case.compile)
    return memory(shape, Layout(), work).total


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown; no lines without rows."""
    rows = [row for row in rows if "memory" in row]
    if not rows:
        return []
    lines = [
        "| peak memory, bf16 | rows x tokens | GiB | estimated GiB | the peak is |",
        "|---|---|---:|---:|---:|",
    ]
    for row in rows:
        name, size = row["memory"], f"{CASES[row['memory']].micro} x {LENGTH}"
        if "missing" in row:
            lines.append(f"| {name} | {size} | not measured: {row['missing']} | | |")
            continue
        guess, peak = estimate(name), row["peak_bytes"]
        lines.append(f"| {name} | {size} | {peak / GIB:.2f} | {guess / GIB:.2f} | {peak / guess - 1:+.1%} |")
    return lines


def main() -> None:
    import torch

    _bare.stand_in()
    for name in sys.argv[1:] or CASES:
        try:
            print(json.dumps(measure(name)), flush=True)
        except Exception as error:  # a case that fails is no reason to leave the others out
            print(
                json.dumps({"memory": name, "missing": f"{type(error).__name__}: {error}"[:300]}), flush=True
            )
        gc.collect()
        torch.compiler.reset()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
