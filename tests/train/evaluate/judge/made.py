"""Ratings of made-up texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.schemas.judging import Judgement
from corpusmill.train.evaluate.judge.pairs import Model, Pairs, pair_id, paired


def judgement(
    choice: Any, prompt: str = "p", a: str = "x", b: str = "y", rater: str = "r", left: Any = "a"
) -> Judgement:
    text_a, text_b = f"{prompt} by {a}", f"{prompt} by {b}"
    return Judgement(
        pair=pair_id(prompt, text_a, text_b), prompt=prompt, a=a, b=b, text_a=text_a, text_b=text_b, left=left, choice=choice,
        rater=rater, time="2026-01-01T00:00:00+00:00", seconds=1.0,
    )  # fmt: skip


def drawn(strengths: dict[str, float], prompts: int, seed: int = 0, ties: float = 0.1) -> list[Judgement]:
    """Every pair of models once for each prompt, by Bradley-Terry."""
    rng = np.random.default_rng(seed)
    names, rows = sorted(strengths), []
    for prompt in range(prompts):
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                chance = 1 / (1 + np.exp(strengths[b] - strengths[a]))
                choice = "tie" if rng.random() < ties else "a" if rng.random() < chance else "b"
                rows.append(judgement(choice, str(prompt), a, b))
    return rows


def pairs(count: int = 4, hostile: str = "") -> Pairs:
    one = Model("runs/one", [(f"prompt {n}{hostile}", f"first {n}{hostile}") for n in range(count)])
    other = Model("runs/other", [(f"prompt {n}{hostile}", f"second {n}{hostile}") for n in range(count)])
    return paired(one, other)
