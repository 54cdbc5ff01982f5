"""Peak memory of training steps on a GPU beside what `corpusmill estimate` computes, for configs that keep different things.

`python -m bench._gpu_memory [NAME ...]` prints one line of JSON for each case; several cases share the process, which is what
makes them cheap: each compiles one layer, whatever the number of layers.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bench import _bare

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


CASES: dict[str, MemoryCase] = {
    "124m": MemoryCase(SMALL, 16, True),
    "350m": MemoryCase(LARGER, 16, True),
    "124m, full": MemoryCase(SMALL, 16, True, {"memory": {"checkpointing": "full"}}),
    "124m, selective": MemoryCase(SMALL, 16, True, {"memory": {"checkpointing": "selective"}}),
    "124m, chunked loss": MemoryCase({**SMALL, "loss_chunk": 4096}, 16, True),
    "speedrun, Muon": MemoryCase(SPEEDRUN, 16, True, {"optimizer": {"kind": "muon"}}),
    "124m, grouped queries": MemoryCase({**SMALL, "kv_heads": 4}, 16, True),
    "124m, eager": MemoryCase(SMALL, 16, False),
    "350m, eager": MemoryCase(LARGER, 8, False),
    "124m, full, eager": MemoryCase(SMALL, 16, False, {"memory": {"checkpointing": "full"}}),
    "124m, selective, eager": MemoryCase(SMALL, 16, False, {"memory": {"checkpointing": "selective"}}),
    "124m, chunked loss, eager": MemoryCase({**SMALL, "loss_chunk": 4096}, 16, False),
    "speedrun, Muon, eager": MemoryCase(SPEEDRUN, 16, False, {"optimizer": {"kind": "muon"}}),
}


def measure(name: str, device: str = "cuda") -> dict[str, Any]:
    """The case's row: bytes allocated at most in a second and third step, the bytes estimated, and their parts."""
    import torch

    from bench._train_ours import make_state, memory_batch
    from corpusmill.train.step import train_step

    case = CASES[name]
    rows = 2 * case.micro
    state = make_state(
        case.model, VOCABULARY, rows=rows, micro=case.micro, length=LENGTH, device=device, sources=2, precision="bf16",
        compile=case.compile, **{"optimizer": {"kind": "adamw"}, **case.settings},
    )  # fmt: skip
    for number in range(3):
        if number == 1:
            torch.cuda.reset_peak_memory_stats()
        state.window.zero_()
        train_step(
            state, memory_batch(rows, LENGTH, VOCABULARY, number=number, device=device), float(rows * LENGTH)
        )
    torch.cuda.synchronize()
    found = {"memory": name, "micro": case.micro, "peak_bytes": torch.cuda.max_memory_allocated()}
    return {**found, **estimated(name), "machine": torch.cuda.get_device_name(), "torch": torch.__version__}


def estimated(name: str) -> dict[str, Any]:
    """What `corpusmill estimate` computes for the case, whole and in parts."""
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.optim import OptimizerConfig
    from corpusmill.train.tools.estimate.layout import Layout, shape_of
    from corpusmill.train.tools.estimate.memory import Work, memory

    case = CASES[name]
    shape = shape_of(ModelConfig.model_validate(case.model), VOCABULARY)
    optimizer = OptimizerConfig.model_validate(case.settings.get("optimizer", {"kind": "adamw"}))
    checkpointing = case.settings.get("memory", {}).get("checkpointing", "none")
    need = memory(shape, Layout(), Work(case.micro, LENGTH, 2 * case.micro, optimizer, "bf16", checkpointing))
    return {"estimate_bytes": need.total, "parts": need._asdict()}


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
