"""One process of several that share sequences: prints as JSON the bytes that a forward pass keeps, the peak of the process, and the
seconds of forward and backward. argv: length, rounds, whether in a ring."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

import torch

VOCABULARY = 8192
MODEL: dict[str, Any] = {"dim": 256, "layers": 4, "heads": 8, "kv_heads": 2, "loss_chunk": 512}


def config_of(length: int, processes: int, ring: bool = False) -> Any:
    """Of a model whose sequences so many processes share."""
    from corpusmill.schemas.training import TrainConfig

    data = {"shards": "-", "sequence_length": length, "global_batch": 1, "micro_batch": 1}
    given = {
        "name": "bench",
        "model": MODEL,
        "data": data,
        "precision": "fp32",
        "threads": 1,
        "device": "cpu",
    }
    return TrainConfig.model_validate({**given, "parallel": {"context": processes, "ring": ring}})


def rows(length: int) -> dict[str, torch.Tensor]:
    """One sequence, in documents of about a quarter of it."""
    ids = torch.randint(VOCABULARY, (1, length + 1), generator=torch.Generator().manual_seed(0))
    documents = (torch.arange(length) * 4 // length)[None]
    return {
        "tokens": ids[:, :-1], "labels": ids[:, 1:], "documents": documents,
        "positions": (torch.arange(length) % (length // 4))[None],
    }  # fmt: skip


def main() -> None:
    from corpusmill.train.parallel.mesh import join
    from corpusmill.train.parallel.model import build

    length, rounds, ring = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "ring"
    config = config_of(length, int(os.environ.get("WORLD_SIZE", "1")), ring)
    world = join(config)
    model = build(config, VOCABULARY, world)
    model.train()
    part = model.own_part(rows(length))
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model.parts[0](**part)
    total = sum(storage.nbytes() for storage in kept.values())
    del loss
    kept.clear()
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        model.backward([part], 1.0)
        seconds.append(time.perf_counter() - began)
    if world.first:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(
            json.dumps({"kept": total, "peak": peak, "seconds": seconds[1:]}), flush=True
        )  # the first warms up
    world.close()


if __name__ == "__main__":
    main()
