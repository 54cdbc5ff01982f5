"""Activations are those of a whole forward pass, over all tokens but padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.tools.compress.calibrate import Stream, calibration_rows
from tests.train.evaluate.scorer_layouts import batches
from tests.train.generate.models import model
from tests.train.models import MLA

Make = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    "settings",
    [{"kv_heads": 2}, {"activation": "gelu", "bias": True}, {"mla": MLA}, {"mla": {**MLA, "q_rank": 12}}],
)
def test_inputs_are_those_of_a_forward_pass(settings: dict[str, Any]) -> None:
    made, rows = model(**settings), batches(2)
    assert any((batch["labels"] == IGNORED).any() for batch in rows)
    wanted: dict[str, list[Tensor]] = {}
    streams: dict[int, list[tuple[Tensor, Tensor]]] = {}
    scored = [torch.empty(0)]

    def seen(name: str) -> Any:
        return lambda _, given: wanted.setdefault(name, []).append(given[0][scored[-1]].double())

    def passed(number: int) -> Any:
        return lambda _, given, out: streams.setdefault(number, []).append(
            (given[0][scored[-1]].double(), out[0][scored[-1]].double())
        )

    hooks = [
        one.register_forward_pre_hook(seen(name))
        for name, one in made.named_modules()
        if isinstance(one, nn.Linear)
    ]
    hooks += [layer.register_forward_hook(passed(int(n))) for n, layer in made.layers.items()]
    with torch.no_grad():
        for batch in rows:
            scored.append(batch["labels"] != IGNORED)
            made(batch["tokens"], None, batch["documents"], batch["positions"])
    for hook in hooks:
        hook.remove()

    stream = Stream(made, rows)
    assert stream.rows == sum(len(batch["tokens"]) for batch in rows)
    assert stream.tokens == sum(int((batch["labels"] != IGNORED).sum()) for batch in rows)
    for number, layer in made.layers.items():
        for hessian in (False, True):
            found = stream.measure(layer, hessian)
            linear = {f"{n}.weight" for n, one in layer.named_modules() if isinstance(one, nn.Linear)}
            assert found.keys() == linear
            for name, of in found.items():
                x = torch.cat(wanted[f"layers.{number}.{name.removesuffix('.weight')}"])
                torch.testing.assert_close(of.sizes, x.abs().mean(0), atol=1e-5, rtol=1e-4)
                torch.testing.assert_close(of.squares, x.square().mean(0), atol=1e-5, rtol=1e-4)
                if of.hessian is not None:
                    torch.testing.assert_close(of.hessian, x.T @ x / len(x), atol=1e-4, rtol=1e-4)
                assert (of.hessian is not None) == hessian
        before, after = (torch.cat(parts) for parts in zip(*streams[int(number)], strict=True))
        importance = float((1 - F.cosine_similarity(before, after, dim=-1)).mean())
        assert stream.advance(layer) == pytest.approx(importance, rel=1e-4)


def test_rows_are_as_many_of_each_source_and_the_same_again(config: Make, shards: Folder) -> None:
    checked = TrainConfig.model_validate(config())
    opened = open_shards(shards.url)
    found = calibration_rows(checked, opened, 12)
    assert sum(len(batch["tokens"]) for batch in found) == 12 and found[0]["tokens"].shape[1] == 24
    again = calibration_rows(checked, opened, 12)
    assert all(torch.equal(a["tokens"], b["tokens"]) for a, b in zip(found, again, strict=True))
    one = TrainConfig.model_validate(config(**{"data.weights": {"wiki": 1}}))
    wanted = list(sample(opened.train["wiki"], 24, 12 * 24, batch=4))
    for a, b in zip(calibration_rows(one, opened, 12), wanted, strict=True):
        assert torch.equal(a["tokens"], b["tokens"])


def test_without_text_it_is_refused(config: Make, shards: Folder) -> None:
    opened = open_shards(shards.url)
    checked = TrainConfig.model_validate(config())
    opened.train.clear()
    with pytest.raises(UserError, match="no train split has text to calibrate on"):
        calibration_rows(checked, opened)
