"""Longer texts by RoPE scaling: the loss by position of a model that was trained on short rows, as it is and after a few steps on long ones."""

from __future__ import annotations

import argparse
import os
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bench import _bare
from bench._books import tokens

if TYPE_CHECKING:
    from corpusmill.train.model.decoder import Decoder

SHORT, FACTOR, VOCABULARY = 128, 8, 512
LONG = SHORT * FACTOR
MODEL: dict[str, Any] = {"dim": 128, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_dim": 352}
STEPS, MORE, ROWS, HELD, RATE = 600, 60, 32, 24, 3e-3
KINDS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "linear": {"kind": "linear", "factor": FACTOR},
    "ntk": {"kind": "ntk", "factor": FACTOR},
    "yarn": {"kind": "yarn", "factor": FACTOR, "original_length": SHORT, "beta_fast": 8.0},
    "llama3": {"kind": "llama3", "factor": FACTOR, "original_length": SHORT},
}
EDGES = (0, SHORT // 2, SHORT, 2 * SHORT, 4 * SHORT, LONG)


def model_of(scaling: dict[str, Any] | None, weights: dict[str, Tensor] | None = None) -> Decoder:
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.train.model.decoder import Decoder

    model = Decoder(ModelConfig(**MODEL, rope_scaling=scaling), VOCABULARY, seed=1)
    if weights is not None:
        model.load_state_dict(weights)
    return model


def trained(model: Decoder, ids: Tensor, length: int, steps: int, rate: float) -> None:
    """A linear decay to 0 over rows of `length` of the text, as many tokens a step whatever the length."""
    from corpusmill.schemas.optim import OptimizerConfig
    from corpusmill.train.optim import make_optimizer
    from corpusmill.train.optim.make import set_rate

    optimizer = make_optimizer(model, OptimizerConfig(lr=rate))
    generator = torch.Generator().manual_seed(length)
    rows = ROWS * SHORT // length
    model.train()
    for step in range(steps):
        starts = torch.randint(len(ids) - length - 1, (rows,), generator=generator)
        batch = torch.stack([ids[start : start + length + 1] for start in starts.tolist()])
        loss = model(batch[:, :-1], batch[:, 1:]).sum() / batch[:, 1:].numel()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        set_rate(optimizer, rate * min(1.0, (step + 1) / 20) * (1 - step / steps))
        optimizer.step()


@torch.no_grad()
def by_position(model: Decoder, held: Tensor) -> list[float]:
    """The mean loss in nats of each span of positions, on rows [n, LONG + 1]."""
    model.eval()
    losses = torch.cat([model(row[None, :-1], row[None, 1:]) for row in held]).mean(0)
    return [float(losses[low:high].mean()) for low, high in pairwise(EDGES)]


def main() -> None:
    """Print Markdown."""
    argparse.ArgumentParser(
        prog="python -m bench.positions", description=f"{__doc__} About eight minutes."
    ).parse_args()
    _bare.stand_in()
    torch.set_num_threads(os.cpu_count() or 1)
    ids = tokens(VOCABULARY)
    size = HELD * (LONG + 1)
    ids, held = ids[:-size], ids[-size:].view(HELD, LONG + 1)  # the last book's end is in no step
    base = model_of(None)
    trained(base, ids, SHORT, STEPS, RATE)
    weights = {name: value.clone() for name, value in base.state_dict().items()}
    spans = [f"{low} to {high - 1}" for low, high in pairwise(EDGES)]
    sys.stdout.write(
        f"A model of {base.parameter_count / 1e6:.2f} M parameters, trained on rows of {SHORT} tokens of the example corpus's books ({STEPS} steps of"
        f" {ROWS * SHORT:,} tokens, BPE of {VOCABULARY}), on rows of {LONG:,}: nats a token by position, on {HELD} rows that no step has seen. As"
        f" it is, and after {MORE} more steps of as many tokens on rows of {LONG:,}, whose rate falls from {RATE / 3:g} to 0. One seed. The lowest of a"
        " column in bold.\n"
    )
    for title, steps in (("as it is", 0), (f"after {MORE} steps on long rows", MORE)):
        found: dict[str, list[float]] = {}
        for kind, scaling in KINDS.items():
            model = model_of(scaling, weights)
            if steps:
                trained(model, ids, LONG, steps, RATE / 3)
            found[kind] = by_position(model, held)
        best = [min(column) for column in zip(*found.values(), strict=True)]
        sys.stdout.write(
            f"\n| {title}: `rope_scaling` | {' | '.join(spans)} |\n|---|{'---:|' * len(spans)}\n"
        )
        for kind, values in found.items():
            cells = [f"**{v:.3f}**" if v == low else f"{v:.3f}" for v, low in zip(values, best, strict=True)]
            sys.stdout.write(f"| {kind} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
