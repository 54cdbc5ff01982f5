"""Sizes by hand, and what is compared: a model with itself, and with one that was changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.compression import CompressionSettings
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.evaluate.documents import document_losses
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.statistics import compared, linearised
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.tools.compress.report import changes, matrices, matrix_bytes, stored_bytes, zeros
from tests.train.conftest import VOCAB
from tests.train.models import KINDS, model_of

Make = Callable[..., dict[str, Any]]


def settings(method: str, **options: Any) -> CompressionSettings:
    return CompressionSettings.model_validate({"method": method, **options})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, 2 * 30 * 100),
        (settings("depth", layers=1), 2 * 30 * 100),
        (settings("int8"), 30 * (100 + 2)),
        (settings("int4"), 30 * (50 + (2 + 0.5) * 4)),
        (settings("gptq", group=64), 30 * (50 + (2 + 0.5) * 2)),
        (settings("awq", group=64), 30 * (50 + (2 + 0.5) * 2) + 2 * 100),
        (settings("width", heads=1), 2 * 30 * 100),
        (settings("magnitude", share=0.9), 2 * 1000 + 375),
        (settings("wanda", pattern="2:4"), 2 * 1500 + 375),
        (settings("wanda", pattern="1:4"), 2 * 750 + 188),
    ],
)  # fmt: skip
def test_bytes_of_a_matrix(given: CompressionSettings | None, wanted: float) -> None:
    weight = torch.zeros(30, 100)
    weight.view(-1)[:1000] = 1.0
    assert matrix_bytes(weight, given) == wanted


@pytest.mark.parametrize("kind", ["llama free", "glm4", "gpt2"])
def test_matrices_are_those_of_products_in_layers(kind: str) -> None:
    model = model_of(KINDS[kind][1])
    found = matrices(model)
    outside = {name for name, value in model.named_parameters() if value.ndim > 1} - found.keys()
    assert outside <= {
        "embedding.weight", "head.weight", "position_embedding.weight", "layers.1.ffn.router.weight",
        "layers.2.ffn.router.weight",
    }  # fmt: skip
    assert {
        "layers.0.attention.q.weight",
        "layers.1.ffn.down" + (".weight" if kind != "glm4" else ""),
    } <= found.keys()
    everything = sum(value.numel() for value in model.parameters())
    assert stored_bytes(model) == 2 * everything
    inside = sum(value.numel() for value in found.values())
    rows = sum(value.numel() // value.shape[-1] for value in found.values())
    assert stored_bytes(model, settings("int8")) == 2 * (everything - inside) + inside + 2 * rows
    assert zeros(model) == 0
    with torch.no_grad():
        model.get_parameter("layers.0.attention.q.weight").zero_()
    assert zeros(model) == pytest.approx(found["layers.0.attention.q.weight"].numel() / inside)


def decoder(checked: TrainConfig) -> Decoder:
    return Decoder(checked.model, VOCAB, 1).eval()


def test_of_a_model_with_itself_nothing_changes(config: Make, shards: Folder) -> None:
    checked = TrainConfig.model_validate(config())
    models = [decoder(checked), decoder(checked)]
    first, found = changes(decoder(checked), models, checked, open_shards(shards.url), World())
    assert first == found and found.keys() == {"wiki", "books", "code"}
    for one in found.values():
        assert one.before == one.after and one.before is not None and one.difference is not None
        assert (one.difference.value, one.difference.low, one.difference.high) == (0, 0, 0)
        assert (one.divergence.value, one.divergence.high, one.divergence_p99) == (0, 0, 0)
        assert (one.agreement.value, one.agreement.low) == (1, 1)


def test_figures_are_their_definitions(config: Make, shards: Folder) -> None:
    """In float32, whatever the run's precision is."""
    checked = TrainConfig.model_validate(config(precision="bf16"))
    models, opened = (decoder(checked), decoder(checked)), open_shards(shards.url)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in models[1].parameters():
            value.add_(torch.randn(value.shape, generator=generator), alpha=0.05)
    found = changes(models[0], models, checked, opened, World())[1]["books"]
    plain = TrainConfig.model_validate(config())
    tables = [
        document_losses(Scorer(ParallelModel([m], World()), plain, World()), opened.validation["books"])
        for m in models
    ]
    sizes = tables[0]["bytes"].to_numpy()
    bits = [linearised(table["nats"].to_numpy() / math.log(2), sizes) for table in tables]
    wanted = compared(bits[1], bits[0]).estimate
    assert found.difference is not None and found.before is not None and found.after is not None
    assert found.difference.value == pytest.approx(wanted.value, rel=1e-4)
    assert (found.difference.low, found.difference.n) == (pytest.approx(wanted.low, rel=1e-3), len(sizes))
    assert found.after.value - found.before.value == pytest.approx(wanted.value, rel=1e-4)

    rows = by_hand(models, opened.validation["books"], plain)
    assert found.divergence.value == pytest.approx(float(rows[0].mean()), rel=1e-4)
    assert found.divergence_p99 == pytest.approx(np.quantile(rows[0].numpy(), 0.99), rel=1e-4)
    assert found.agreement.value == pytest.approx(float(rows[1].double().mean()))
    assert 0 < found.agreement.value < 1 and found.divergence.n == 4


def by_hand(models: tuple[Decoder, Decoder], source: Any, checked: TrainConfig) -> tuple[Tensor, Tensor]:
    """KL and agreement of each scored token of the sample."""
    apart, same = [], []
    for batch in sample(source, 24, checked.validation.tokens):
        scored = batch["labels"] >= 0
        with torch.no_grad():
            logs = [
                m(batch["tokens"], None, batch["documents"], batch["positions"]).double().log_softmax(-1)
                for m in models
            ]
        apart.append((logs[0].exp() * (logs[0] - logs[1])).sum(-1)[scored])
        same.append((logs[0].argmax(-1) == logs[1].argmax(-1))[scored])
    return torch.cat(apart), torch.cat(same)


def test_without_validation_text_it_is_refused(config: Make, shards: Folder) -> None:
    checked, opened = TrainConfig.model_validate(config()), open_shards(shards.url)
    opened.validation.clear()
    with pytest.raises(UserError, match="no source has a validation split"):
        changes(decoder(checked), [decoder(checked)], checked, opened, World())
