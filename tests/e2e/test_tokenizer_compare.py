"""`tokenizer compare --train`: small models at equal FLOPs, by the command that a user gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpusmill.schemas.tokenizer import TokenizerComparison
from corpusmill.small_models import flops_per_step
from tests.e2e.cli import started
from tests.pipeline.corpus import words

BUDGET = 4e10


def test_models_are_trained_at_equal_flops(tmp_path: Path) -> None:
    rows = (json.dumps({"text": words(200 + i % 9, i % 5)}) for i in range(120))
    (tmp_path / "docs.jsonl").write_text("\n".join(rows) + "\n")
    arguments = [
        "--kinds",
        "bpe,byte,wordpiece,word",
        "--vocab",
        "1024",
        "--train",
        "--flops",
        str(BUDGET),
        "--json",
    ]
    out = started("tokenizer", "compare", tmp_path / "docs.jsonl", *arguments)
    found = TokenizerComparison.model_validate_json(out.stdout)
    assert out.stderr == ""
    models = {one.kind: one.model for one in found.kinds}
    assert list(models) == ["bpe", "wordpiece", "byte", "word"] and models["word"] is None
    sizes = {one.kind: one.vocab_size for one in found.kinds}
    for kind, model in models.items():
        if model is None:
            continue
        each = flops_per_step(sizes[kind])
        assert model.steps == round(BUDGET / each) and model.flops == pytest.approx(model.steps * each)
        assert model.tokens == model.steps * 128 * 16 and 0 < model.bits_per_byte < 10
        assert (
            model.low is not None and model.high is not None and model.low < model.bits_per_byte < model.high
        )
    byte, bpe = models["byte"], models["bpe"]
    assert byte is not None and bpe is not None
    assert byte.steps > bpe.steps and byte.parameters < bpe.parameters
