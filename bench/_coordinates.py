"""The coordinate check of muP (Yang et al. 2022, appendix D.1): by how much a few steps change what layers put out, over widths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

# Few tokens: with many, at small widths, most of a change is of directions that are random to each other, and falls with the width.
WIDTHS, STEPS, VOCABULARY, BASE = (64, 128, 256, 512), 4, 8, 64


def changes(width: int, mup: bool, optimizer: dict[str, Any], seed: int, **more: Any) -> dict[str, float]:
    """By how much a few steps change the output of each half of each layer and the logits: the mean absolute difference, on the rows of
    training. An untied head begins at 0, as that of Yang et al."""
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.optim import OptimizerConfig
    from corpusmill.train.model.decoder import Decoder
    from corpusmill.train.optim import make_optimizer

    config = ModelConfig(
        dim=width, layers=2, vocab_multiple=8, ffn_dim=2 * width, mup_base_width=BASE if mup else None,
        **{"heads": width // 16, **more},
    )  # fmt: skip
    model = Decoder(config, VOCABULARY, seed)
    if model.head is not None:
        torch.nn.init.zeros_(model.head.weight)
    settings = {"lr": 0.005, "weight_decay": 0.0, **optimizer}
    made = make_optimizer(model, OptimizerConfig.model_validate(settings))
    seen: dict[str, torch.Tensor] = {}
    for number, layer in model.layers.items():
        for part in ("attention", "ffn"):
            keep = f"{part} {number}"
            getattr(layer, part).register_forward_hook(
                lambda _module, _inputs, y, keep=keep: seen.update(
                    {keep: (y[0] if isinstance(y, tuple) else y).detach()}
                )
            )
    ids = torch.randint(VOCABULARY, (8, 32), generator=torch.Generator().manual_seed(1))
    labels = (ids * 7 + 3) % VOCABULARY
    before = {"logits": model(ids).detach(), **seen}
    for _ in range(STEPS):
        made.zero_grad()
        (model(ids, labels).sum() / labels.numel()).backward()
        made.step()
    after = {"logits": model(ids).detach(), **seen}
    return {name: float((after[name] - before[name]).abs().mean()) for name in before}


def over_widths(mup: bool, optimizer: dict[str, Any], seeds: int, **more: Any) -> dict[str, list[float]]:
    """Of each output the change at each width, the mean over seeds."""
    found: dict[str, list[float]] = {}
    for width in WIDTHS:
        runs = [changes(width, mup, optimizer, seed, **more) for seed in range(seeds)]
        for name in runs[0]:
            found.setdefault(name, []).append(sum(one[name] for one in runs) / seeds)
    return found


def slope(values: Sequence[float]) -> float:
    """Of the logarithm of a change over that of the width, by least squares: 0 if it does not depend on the width."""
    x = torch.tensor([math.log(width) for width in WIDTHS])
    x -= x.mean()
    return float((x * torch.tensor(values).log()).sum() / (x * x).sum())
