"""Run in several processes: layouts under Muon, each against one process, and how many matrices all processes orthogonalise.

argv[1]: JSON list of [name, parallel settings, other settings]. The first process prints for each what differs, or that it
agrees, and the number of matrices of a step."""

from __future__ import annotations

import json
import os
import sys
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from corpusmill.train.optim import muon
from tests.train.parallel.layouts import STEPS, compare, reference


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for name, parallel, more in json.loads(sys.argv[1]):
        reference(json.dumps(more))
        here, real = torch.zeros(2), muon.orthogonalise

        def counted(stack: Tensor, here: Tensor = here, real=real) -> Tensor:
            here[0] += stack.shape[:-2].numel()
            return real(stack)

        with patch.object(muon, "orthogonalise", counted):
            different: list[list[str]] = [[] for _ in range(dist.get_world_size())]
            dist.all_gather_object(different, compare(parallel, more))
        busy = here[0].clone()
        dist.all_reduce(here)
        dist.all_reduce(busy, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            for line in (" ".join(text.split()) for texts in different for text in texts):
                print(f"{name} differs: {line}")
            print(
                f"{name}: {int(here[0]) // (STEPS - 1)} matrices, {int(busy) // (STEPS - 1)} at most",
                flush=True,
            )
    dist.barrier()
    # gloo's threads may outlive the interpreter's end and abort the process; all is written.
    os._exit(0)


if __name__ == "__main__":
    main()
