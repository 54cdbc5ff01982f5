"""`--draft` of generate, chat and serve: the draft is used, changes no greedy text, and is refused if it has another tokenizer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.commands import register
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.serve import server
from corpusmill.train.generate.serve.app import Served
from corpusmill.train.generate.speculate import PromptLookup, Proposal, SmallModel
from corpusmill.train.trainer import train
from tests.command_line import CliRunner
from tests.train.generate.models import few_bytes


@pytest.fixture
def runs(write_config: Callable[..., Path], tmp_path: Path) -> tuple[str, str]:
    """A run and another one, with which it shares the tokenizer."""
    train(load(TrainConfig, write_config(**{"schedule.steps": 3, "schedule.warmup_steps": 0})))
    shutil.copytree(tmp_path / "run", tmp_path / "small")
    return str(tmp_path / "run"), str(tmp_path / "small")


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """Takes the kind of each draft that proposes tokens."""
    found: list[type] = []
    for kind in (SmallModel, PromptLookup):
        before = kind.propose

        def propose(
            self: Any, requests: Sequence[Request], counts: Sequence[int], before: Any = before
        ) -> list[Proposal]:
            found.append(type(self))
            return before(self, requests, counts)  # type: ignore[no-any-return]

        monkeypatch.setattr(kind, "propose", propose)
    return found


def command(*arguments: str, lines: str = "") -> str:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, arguments, input=lines, catch_exceptions=True)
    if result.exception:
        raise result.exception
    return result.stdout


@pytest.mark.parametrize("name", ["generate", "chat"])
def test_greedy_texts_are_the_same(runs: tuple[str, str], proposed: list[type], name: str) -> None:
    run, small = runs
    options = [name, run, "--temperature", "0", "--max-tokens", "20"]
    options += ["--prompt", "āĂ"] if name == "generate" else []
    plain = command(*options, lines="āĂ\nă\n")
    assert not proposed and len(plain) > 3
    for draft, kind in ((small, SmallModel), ("prompt", PromptLookup)):
        assert command(*options, "--draft", draft, lines="āĂ\nă\n") == plain
        assert set(proposed) == {kind}
        proposed.clear()


@pytest.mark.parametrize(("draft", "kind"), [("small", SmallModel), ("prompt", PromptLookup)])
def test_serve_has_it(runs: tuple[str, str], draft: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Served] = []
    monkeypatch.setattr(server, "serve", lambda served, *_: found.append(served))
    command("serve", runs[0], "--port", "0", "--draft", runs[1] if draft == "small" else draft)
    assert type(found[0].worker.engine.draft) is kind


@pytest.mark.parametrize("name", ["generate", "chat", "serve"])
def test_another_tokenizer_is_refused(runs: tuple[str, str], name: str) -> None:
    run, small = runs
    few_bytes().save(f"{small}/tokenizer.json")
    with pytest.raises(UserError) as error:
        command(name, run, "--draft", small, *(["--port", "0"] if name == "serve" else []))
    wanted = f"--draft {small}: has another tokenizer than the model; train it on the same shards"
    assert str(error.value) == wanted
    with pytest.raises(UserError, match="nowhere"):
        command(name, run, "--draft", "nowhere", *(["--port", "0"] if name == "serve" else []))
