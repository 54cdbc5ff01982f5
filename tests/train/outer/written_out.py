"""Run in several processes: `Outer` over parameters that move by themselves, against the algorithm written out for all workers at once.

argv[1]: JSON list of settings of `OuterConfig`. Each process prints what differs; the first also that all is done.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from corpusmill.schemas.outer import OuterConfig
from corpusmill.train.outer.worker import Outer
from corpusmill.train.parallel.mesh import World

STEPS = 17


class Moved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.layers = nn.ModuleDict({str(n): nn.Linear(3, 4 + n) for n in range(3)})
        self.norm = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            for name, p in self.named_parameters():
                p.copy_(noise(name, 0, 0, p))


def noise(name: str, worker: int, step: int, like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(hash_of(f"{name} {worker} {step}"))
    return torch.randn(like.shape, generator=generator)


def hash_of(text: str) -> int:
    return sum(ord(letter) * 31**place for place, letter in enumerate(text)) % 2**31


def fragment(name: str, fragments: int) -> int:
    if name.startswith("layers."):
        return int(name.split(".")[1]) % fragments
    return 0 if name.startswith("embedding") else fragments - 1


def rounded(values: Tensor, bits: int) -> Tensor:
    if bits == 16:
        return values.bfloat16().double()
    scale = values.float().abs().max() / 127
    return ((values.float() / scale).round() * scale).double() if bits == 8 and scale else values


def reference(config: OuterConfig, workers: int) -> tuple[list[list[Tensor]], list[Tensor]]:
    """(the weights of each worker, those in common) after all steps, float64, in the order of the parameters."""
    named = {name: p.detach().double() for name, p in Moved().named_parameters()}
    common = {name: p.clone() for name, p in named.items()}
    local = [{name: p.clone() for name, p in named.items()} for _ in range(workers)]
    momentum = {name: torch.zeros_like(p) for name, p in named.items()}
    period, arriving = config.every // config.fragments, dict[int, dict[str, Tensor]]()

    def take(mean: dict[str, Tensor], mix: float) -> None:
        for name, gradient in mean.items():
            momentum[name] = config.momentum * momentum[name] + gradient
            ahead = gradient + config.momentum * momentum[name]
            common[name] = common[name] - config.lr * (ahead if config.nesterov else momentum[name])
            for one in local:
                one[name] = mix * one[name] + (1 - mix) * common[name]

    def difference(name: str) -> Tensor:
        return torch.stack([rounded(common[name] - one[name], config.bits) for one in local]).mean(0)

    for step in range(1, STEPS + 1):
        for worker, one in enumerate(local):
            for name, p in one.items():
                one[name] = p + 0.1 * noise(name, worker, step, p).double()
        last = step == STEPS
        for due in [due for due in arriving if due <= step or last]:
            take(arriving.pop(due), config.mix)
        if last:
            take({name: difference(name) for name in common}, 0.0)
        elif step % period == 0:
            turn = (step // period - 1) % config.fragments
            mean = {n: difference(n) for n in common if fragment(n, config.fragments) == turn}
            if config.delay:
                arriving[step + config.delay] = mean
            else:
                take(mean, config.mix)
    return [list(one.values()) for one in local], list(common.values())


def check(settings: dict[str, Any], world: World) -> list[str]:
    config, model = OuterConfig(**settings), Moved()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outer: Any = Outer(config, model, optimizer, world)  # type: ignore[arg-type]
    for step in range(1, STEPS + 1):
        with torch.no_grad():
            for name, p in model.named_parameters():
                p += 0.1 * noise(name, world.rank, step, p)
        outer.after(step, step == STEPS)
    local, common = reference(config, world.size)
    # A code may round to its neighbour where float32 and float64 differ.
    close = {32: 1e-5, 16: 2e-3, 8: 2e-2}[config.bits]
    wrong = []
    for kind, found, wanted in (
        ("its own weights", [p.detach() for p in model.parameters()], local[world.rank]),
        ("the weights in common", list(outer.common.values()), common),
    ):
        for (name, _), a, b in zip(model.named_parameters(), found, wanted, strict=True):
            if not torch.allclose(a.double(), b, atol=close, rtol=close):
                wrong.append(
                    f"{settings}: process {world.rank}: {kind} of {name}: {float((a - b).abs().max()):.2g}"
                )
    return wrong


def main() -> None:
    several = "RANK" in os.environ
    if several:
        dist.init_process_group("gloo")
    torch.set_num_threads(1)
    world = World(dist.get_rank(), dist.get_world_size()) if several else World()
    for settings in json.loads(sys.argv[1]):
        for line in check(settings, world):
            print(line, flush=True)
    if several:
        dist.barrier()
    if world.first:
        print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
