"""What `generate` makes of prompts: the tokens that are read, the lines that are written, and what happens when it cannot go on."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import typer

from corpusmill.common.config import load
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.commands import register
from corpusmill.train.commands.generation import continued
from corpusmill.train.generate.chat import Chat
from corpusmill.train.generate.generate import Opened, open_model, texts
from corpusmill.train.generate.speculate import SmallModel
from corpusmill.train.generate.terminal import Conversation, talk
from corpusmill.train.trainer import train
from tests.command_line import CliRunner
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


LONG = "the in " * 20


def test_a_text_goes_on_beyond_the_context_or_ends_with_it() -> None:
    model, endless = opened(context=16, scale=1.2), {"logit_bias": {EOS: -100.0}, "max_tokens": 60}
    sampling = Sampling.model_validate(endless)
    (slid,) = continued(model, [{"prompt": "a"}], sampling, 1)
    (ended,) = continued(model, [{"prompt": "a"}], sampling, 1, slide=False)
    assert (slid["end"], slid["tokens"]) == ("length", 60)
    assert (ended["end"], ended["tokens"]) == ("context", 15) and slid["text"].startswith(ended["text"])


def test_a_prompt_longer_than_the_context_is_cut_with_a_note_or_refused() -> None:
    model, rows = opened(context=16), [{"prompt": "a"}, {"prompt": LONG}, {"prompt": "b"}]
    tokens = len(model.prompt(LONG))
    found = list(continued(model, rows, SHORT, 2))
    assert [line.get("prompt_cut") for line in found] == [None, tokens - 16, None]
    refused = list(continued(model, rows, SHORT, 2, slide=False))
    assert refused[0] == found[0] and refused[2] == found[2]
    why = f"the prompt has {tokens} tokens, and the model's context 16: shorten it"
    assert refused[1] == {"prompt": LONG, "text": "", "end": "failed", "tokens": 0, "error": why}


def command(*arguments: str) -> tuple[str, str]:
    """What it prints, and what it says on standard error."""
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, arguments, catch_exceptions=True)
    if result.exception:
        raise result.exception
    return result.stdout, result.stderr


def test_the_command_takes_weights_in_few_bits(write_config: Callable[..., Path], tmp_path: Path) -> None:
    train(load(TrainConfig, write_config(**{"schedule.steps": 1, "schedule.warmup_steps": 0})))
    options = ["generate", str(tmp_path / "run"), "--prompt", "ā", "--max-tokens", "8", "--temperature", "1"]
    found = [command(*options, *bits)[0] for bits in ([], ["--weights", "int8"], ["--weights", "int4"])]
    assert all(text.startswith("ā") for text in found) and len(set(found)) > 1
    assert command(*options, "--weights", "int4")[0] == found[2]


def test_the_command_says_what_it_has_cut(write_config: Callable[..., Path], tmp_path: Path) -> None:
    train(load(TrainConfig, write_config(**{"schedule.steps": 1, "schedule.warmup_steps": 0})))
    options = ["generate", str(tmp_path / "run"), "--context", "8", "--max-tokens", "3"]
    long = "ā" * 20
    out, err = command(*options, "--prompt", long)
    assert out.startswith(long)
    assert err == (
        "the prompt has 21 tokens, and the context 8: the first 13 are not read (--context-end stop: refuse)\n"
    )
    assert json.loads(command(*options, "--prompt", long, "--json")[0])["prompt_cut"] == 13
    assert command(*options, "--prompt", "ā")[1] == ""
    with pytest.raises(UserError, match="the prompt has 21 tokens, and the model's context 8: shorten it"):
        command(*options, "--prompt", long, "--context-end", "stop")
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": long}) + '\n{"prompt": "a"}\n')
    out, err = command(*options, "--prompts", str(file))
    assert [json.loads(line).get("prompt_cut") for line in out.splitlines()] == [13, None]
    assert err == "1 prompt was cut to the context of 8 tokens: see `prompt_cut` in the lines\n"
    with pytest.raises(WorkError, match="1 text could not be generated: see `error` in the lines"):
        command(*options, "--prompts", str(file), "--context-end", "stop")


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


def test_a_model_of_no_numbers_is_named_as_the_reason() -> None:
    lines = list(continued(broken(), [{"prompt": "a", "id": 7}], SHORT, 2))
    why = "the model gives numbers that are not finite"
    assert lines == [{"prompt": "a", "id": 7, "text": "", "end": "failed", "tokens": 0, "error": why}]
    with pytest.raises(WorkError, match=f"^the text could not be generated: {why}$"):
        texts(broken(), ["a"], SHORT)
    out, model = io.StringIO(), broken()
    talk(Conversation(model, Chat(model), SHORT), io.StringIO("a\nb\n"), out)
    assert out.getvalue() == f"(the text could not be generated: {why})\n" * 2
