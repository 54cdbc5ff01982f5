"""With a draft, texts have the distribution that each filter leaves: counted over the engine's own draws, 40,000 and more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.generate.cache import Cache
from corpusmill.train.generate.engine import Engine
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.runner import Runner
from corpusmill.train.generate.sample import choices
from corpusmill.train.generate.speculate import Draft, PromptLookup, SmallModel

TOKENS = 7
EOS = TOKENS  # has a logit of minus 100
DRAWS = 40_000
ROWS = 50  # half of the requests


class Bigram(Runner):
    """What follows a token depends on that token alone, so that every token of a text is a draw of a known distribution."""

    def __init__(self, table: Tensor) -> None:
        self.table, self.vocab_size, self.eos_id, self.context = table, TOKENS + 1, EOS, 1024
        self.device, self.virtual = table.device, 0

    def cache(self, rows: int, spare: int = 0) -> Cache:
        config = ModelConfig.model_validate({"dim": 8, "layers": 1, "heads": 1, "ffn_dim": 8})
        return Cache(config, rows, self.context + spare, torch.float32, self.device)

    def hidden(
        self, cache: Cache, first: int, tokens: Sequence[Sequence[int]], adapters: Sequence[int] = ()
    ) -> Tensor:
        width = max(map(len, tokens))
        cache.begin(first, len(tokens), width)
        cache.advance([len(part) for part in tokens])
        return torch.tensor([[*part, *[0] * (width - len(part))] for part in tokens])

    def logits(self, hidden: Tensor) -> Tensor:
        return self.table[hidden]


def bigram(seed: int, noise: float = 0.0) -> Bigram:
    generator = torch.Generator().manual_seed(3)
    table = 1.5 * torch.randn(TOKENS + 1, TOKENS + 1, generator=generator)
    table += noise * torch.randn(table.shape, generator=generator.manual_seed(seed))
    table[:, EOS] = -100.0
    return Bigram(table)


FILTERS: dict[str, dict[str, Any]] = {
    "none": {}, "top_p": {"top_p": 0.8}, "min_p": {"min_p": 0.1}, "typical_p": {"typical_p": 0.7},
    "all": {"temperature": 1.2, "top_k": 6, "top_p": 0.95, "min_p": 0.03, "typical_p": 0.95},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["small model", "lookup"])
@pytest.mark.parametrize(
    "name", ["all", *(pytest.param(name, marks=pytest.mark.slow) for name in FILTERS if name != "all")]
)
def test_each_token_has_the_filtered_distribution(name: str, kind: str) -> None:
    target = bigram(1)
    draft: Draft = SmallModel(bigram(2, 0.7)) if kind == "small model" else PromptLookup(3, 1)
    sampling = Sampling.model_validate(
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_tokens": 400, "seed": 5, **FILTERS[name]}
    )
    engine = Engine(target, rows=ROWS, draft=draft)
    requests = [Request([EOS, n % TOKENS], sampling, n) for n in range(DRAWS // 400)]
    for request in requests:
        engine.submit(request)
    steps = 0
    while engine.busy:
        engine.step()
        steps += 1
    assert steps < 0.8 * DRAWS / ROWS  # proposals are accepted
    seen = np.zeros((TOKENS, TOKENS), dtype=np.int64)
    for request in requests:
        text = np.array([request.prompt[-1], *request.tokens])
        np.add.at(seen, (text[:-1], text[1:]), 1)
    assert seen.sum() == DRAWS
    wanted = (
        choices(target.table[:TOKENS], [sampling] * TOKENS).dense(TOKENS + 1)[:, :TOKENS].double().numpy()
    )
    assert (seen[wanted == 0] == 0).all()
    chances = []
    for row, share in zip(seen, wanted, strict=True):
        kept = share > 0
        if kept.sum() > 1 and row.sum() > 500:
            chances.append(stats.chisquare(row[kept], share[kept] / share[kept].sum() * row.sum()).pvalue)
    assert len(chances) >= 4 and min(chances) > 0.001 / len(chances)
