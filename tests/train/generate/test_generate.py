"""What `generate` makes of prompts: the tokens that are read, the lines that are written, and what happens when it cannot go on."""

from __future__ import annotations

import io

import pytest
import torch

from corpusmill.common.errors import WorkError
from corpusmill.schemas.generation import Sampling
from corpusmill.train.commands.generation import continued
from corpusmill.train.generate.chat import Chat
from corpusmill.train.generate.generate import Opened, texts
from corpusmill.train.generate.terminal import Conversation, talk
from tests.train.generate.models import opened

SHORT = Sampling(max_tokens=5)


def broken() -> Opened:
    """A model that gives no numbers."""
    made = opened()
    with torch.no_grad():
        for parameter in made.runner.model.parameters():
            parameter.fill_(float("nan"))
    return made


def test_a_model_of_no_numbers_is_said_to_be_one() -> None:
    lines = list(continued(broken(), [{"prompt": "a", "id": 7}], SHORT, 2))
    why = "the model gives numbers that are not finite"
    assert lines == [{"prompt": "a", "id": 7, "text": "", "end": "failed", "tokens": 0, "error": why}]
    with pytest.raises(WorkError, match=f"^the text could not be generated: {why}$"):
        texts(broken(), ["a"], SHORT)
    out, model = io.StringIO(), broken()
    talk(Conversation(model, Chat(model), SHORT), io.StringIO("a\nb\n"), out)
    assert out.getvalue() == f"(the text could not be generated: {why})\n" * 2
