"""`tokenizer compare` from end to end, and that `tokenizer` is still the stage's command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corpusmill.__main__ import build
from corpusmill.common.errors import UserError
from corpusmill.pipeline.commands.tokenizer import KINDS, chosen_kinds
from corpusmill.schemas.tokenizer import TokenizerComparison
from tests.command_line import CliRunner
from tests.pipeline.corpus import words


def invoked(*arguments: str | Path) -> str:
    result = CliRunner().invoke(build(), list(map(str, arguments)), env={"COLUMNS": "80"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for name, first in (("web", 0), ("code", 500)):
        rows = (json.dumps({"text": words(60 + i % 9, first + i)}) for i in range(40))
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def test_files_are_compared_as_sources(files: Path) -> None:
    arguments = ["tokenizer", "compare", files / "web.jsonl", files / "code.jsonl", "--vocab", "600"]
    found = TokenizerComparison.model_validate_json(invoked(*arguments, "--json"))
    assert [one.kind for one in found.kinds] == list(KINDS) and list(found.sources) == ["code", "web"]
    assert all(one.held_out == "hash" and one.held_out_docs >= 1 for one in found.sources.values())
    assert sum(one.train_docs + one.held_out_docs for one in found.sources.values()) == 80
    text = invoked(*arguments, "--kinds", "byte,bpe", "--quiet")
    assert max(map(len, text.splitlines())) <= 80
    assert [line.split()[0] for line in text.splitlines() if line[:4] in ("bpe ", "byte")][:2] == [
        "bpe",
        "byte",
    ]
    assert "bytes per token, by source" in text and "web" in text


def test_the_stages_own_command_is_as_it_was(files: Path, tmp_path: Path) -> None:
    invoked(
        "tokenizer", files / "web.jsonl", tmp_path / "out", "--vocab-size", "300", "--workers", "0", "--quiet"
    )
    assert (tmp_path / "out/tokenizer.json").is_file()
    shown = " ".join(invoked("tokenizer", "--help").split())
    assert "{OUT}" in shown and "--vocab-size" in shown and "`corpusmill tokenizer compare`" in shown
    shown = invoked("tokenizer", "compare", "--help")
    assert "corpusmill tokenizer compare [OPTIONS]" in shown and "{OUT}" not in shown and "--kinds" in shown


def test_a_finished_run_is_compared_by_its_split(files: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: small\noutput: {tmp_path / 'run'}\n"
        f"sources: {{web: {{paths: [{files / 'web.jsonl'}]}}, code: {{paths: [{files / 'code.jsonl'}]}}}}\n"
        "stages: [ingest, split, tokenizer]\nsplit: {validation_share: 0.2, min_documents: 3}\n"
        "tokenizer: {model: unigram, vocab_size: 400}\n"
    )
    invoked("run", recipe, "--workers", "0", "--quiet")
    stats = json.loads((tmp_path / "run/tokenizer/stats.json").read_bytes())
    arguments = ["tokenizer", "compare", tmp_path / "run", "--vocab", "600", "--kinds", "unigram", "--json"]
    found = TokenizerComparison.model_validate_json(invoked(*arguments))
    for name, source in found.sources.items():
        assert source.held_out == "validation" and source.held_out_docs == stats["sources"][name]["docs"]
    with pytest.raises(UserError, match=r"^--set: belongs to files"):
        invoked(*arguments, "--set", "ingest.partition_mb=1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("bpee", "--kinds: 'bpee' is not one; did you mean 'bpe'?"),
        (" , ", "--kinds: give one or more of bpe"),
    ],
)
def test_mistakes_take_one_line(given: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        chosen_kinds(given)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert chosen_kinds("word, bpe,bpe") == ["bpe", "word"]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UserError, match=r"nowhere\.jsonl"):
        invoked("tokenizer", "compare", "nowhere.jsonl")
