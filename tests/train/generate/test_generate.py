"""What `generate` makes of prompts: the tokens that are read, the lines that are written, and what happens when it cannot go on."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from corpusmill.common.config import load
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.commands.generation import continued
from corpusmill.train.generate.chat import Chat
from corpusmill.train.generate.generate import Opened, open_model, texts
from corpusmill.train.generate.speculate import SmallModel
from corpusmill.train.generate.terminal import Conversation, talk
from corpusmill.train.trainer import train
from tests.train.generate.models import BYTES, EOS, opened

SHORT = Sampling(max_tokens=5)


def broken() -> Opened:
    """A model that gives no numbers."""
    made = opened()
    with torch.no_grad():
        for parameter in made.runner.model.parameters():
            parameter.fill_(float("nan"))
    return made


def test_a_prompt_gets_no_token_that_training_does_not_put_there() -> None:
    """A tokenizer of Llama 3's kind begins each text with a token of its own, or cuts it, where it is not asked not to."""
    from tokenizers.processors import TemplateProcessing

    made = opened()
    wanted = [EOS, *made.tokenizer.encode("the in", add_special_tokens=False).ids]
    made.tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", pair="$A $B", special_tokens=[("<|im_start|>", BYTES - 2)]
    )
    assert made.tokenizer.encode("the in").ids[0] == BYTES - 2
    assert made.prompt("the in") == wanted


def test_control_tokens_may_be_written_by_name_in_a_prompt() -> None:
    """So the format of a tuned model is written by hand; in messages of chats they are refused."""
    made = opened()
    assert made.prompt("<|im_start|>a") == [EOS, BYTES - 2, made.tokenizer.token_to_id("a")]


def test_the_tokenizer_of_a_run_neither_cuts_nor_pads(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    from tokenizers import Tokenizer

    file = write_config(**{"schedule.steps": 1, "schedule.warmup_steps": 0})
    config = load(TrainConfig, file)
    train(config)
    kept = tmp_path / "run/tokenizer.json"
    tokenizer = Tokenizer.from_file(str(kept))
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(kept))
    found = open_model(config, Folder(tmp_path / "run"))
    assert found.prompt("āĂăĄ") == [EOS, 1, 2, 3, 4]


def test_tokens_behind_a_stop_string_do_not_count() -> None:
    """A draft brings several at a time, of which the stop string ends the text at the first."""
    plain = opened(scale=1.2)
    drafted = plain._replace(draft=SmallModel(plain.runner))  # every proposal is accepted
    rows, greedy = (
        [{"prompt": text} for text in ("the in", "a", "er")],
        Sampling(max_tokens=30, temperature=0),
    )
    texts = [line["text"] for line in continued(plain, rows, greedy, 2)]
    stopped = greedy.model_copy(update={"stop": [text[5:7] for text in texts if len(text) > 7]})
    found = [list(continued(model, rows, stopped, 2)) for model in (plain, drafted)]
    assert found[0] == found[1] and any(line["end"] == "stop" and line["tokens"] < 10 for line in found[0])


def test_a_model_of_no_numbers_is_said_to_be_one() -> None:
    lines = list(continued(broken(), [{"prompt": "a", "id": 7}], SHORT, 2))
    why = "the model gives numbers that are not finite"
    assert lines == [{"prompt": "a", "id": 7, "text": "", "end": "failed", "tokens": 0, "error": why}]
    with pytest.raises(WorkError, match=f"^the text could not be generated: {why}$"):
        texts(broken(), ["a"], SHORT)
    out, model = io.StringIO(), broken()
    talk(Conversation(model, Chat(model), SHORT), io.StringIO("a\nb\n"), out)
    assert out.getvalue() == f"(the text could not be generated: {why})\n" * 2
