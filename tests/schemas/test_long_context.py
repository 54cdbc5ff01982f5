"""Options of long context that do not fit together are refused with the key to change."""

from __future__ import annotations

from typing import Any

import pytest

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.training import TrainConfig

TEACHER = {"teacher": "runs/teacher"}
SMOOTH = {"label_smoothing": 0.1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": {"global_every": 3}}, "model: global_every 3 sets local layers apart, and window is null"),
        ({"model": {"preset": "gpt2", "nope_every": 2}}, "model: nope_every leaves rotary positions out"),
        ({"model": {"reward_head": True, "logit_softcap": 30.0}}, "model: logit_softcap caps the logits of tokens"),
        ({"model": {"logit_softcap": 30.0}, "regularization": SMOOTH}, "regularization.label_smoothing: computes with logits"),
        ({"model": {"logit_softcap": 30.0}, "distillation": TEACHER}, "distillation: computes with logits"),
        ({"parallel": {"ring": True}}, "parallel: ring: no processes share a sequence: set context to 2 or more"),
        ({"parallel": {"context": 2}, "regularization": SMOOTH}, "parallel: context 2 cuts sequences, and regularization needs"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(given: dict[str, Any], message: str) -> None:
    whole = {"name": "x", "data": {"shards": "-", "sequence_length": 16}, **given}
    with pytest.raises(UserError) as error:
        validate(TrainConfig, whole, "train.yaml")
    assert message in str(error.value)
