"""The scorer gives the same in every layout as in one process, to 1e-5 nats: answers of queries, losses, probabilities of the likeliest
tokens, and the divergence of two models."""

from __future__ import annotations

import json
from typing import Any

from tests.forks import launch

CASES: list[list[Any]] = [
    ["tensor", {"tensor": 2}, {}],
    ["pipeline", {"pipeline": 2}, {"tie_embeddings": False}],
    ["interleaved", {"pipeline": 2, "schedule": "interleaved"}, {}],
    ["zero 3", {"zero": 3}, {}],
    ["zero 3, untied", {"zero": 3}, {"tie_embeddings": False}],
    ["learned positions, tensor", {"tensor": 2}, {"preset": "gpt2", "max_positions": 48}],
]


def test_every_layout_scores_as_one_process() -> None:
    done = launch(2, "tests.train.evaluate.scorer_layouts", json.dumps(CASES))
    agreed = [line.removesuffix(" agrees") for line in done.stdout.splitlines() if line.endswith(" agrees")]
    assert agreed == [name for name, _, _ in CASES] and done.returncode == 0, done.stdout + done.stderr
