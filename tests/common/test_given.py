"""A tokenizer of the user's: found, its end of documents found, measured like a trained one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.__main__ import build as build_cli
from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import DEFAULT_END, TRAIN, end_token, read_given
from corpusmill.pipeline.tokenizer.train import train
from corpusmill.schemas.tokenizer import TokenizerParams
from tests.command_line import CliRunner
from tests.pipeline.tokenizer.test_tokenizer import build, corpus, prepared


def special(*names: str) -> bytes:
    return json.dumps({"added_tokens": [{"content": name, "special": True} for name in names]}).encode()


def test_the_end_is_named_or_known() -> None:
    assert TokenizerParams().eos_token == DEFAULT_END
    assert end_token(special("<s>", DEFAULT_END, "</s>"), DEFAULT_END) == DEFAULT_END
    assert end_token(special("<s>", "</s>", "<pad>"), DEFAULT_END) == "</s>"
    assert (
        end_token(special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"), DEFAULT_END)
        == "<|end_of_text|>"
    )
    assert end_token(special("<s>", "</s>"), "<stop>") == "<stop>"  # what the user named is never replaced
    assert end_token(special("<s>"), DEFAULT_END) == DEFAULT_END


@given(
    st.one_of(
        st.binary(),
        st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda x: json.dumps(x).encode()),
    )
)
def test_any_bytes_are_taken(data: bytes) -> None:
    assert end_token(data, DEFAULT_END) == DEFAULT_END


def test_a_folder_or_a_file_is_read(tmp_path: Path) -> None:
    data = b'{"model": {}}'
    for name in ("tokenizer.json", "gpt2.tokenizer"):
        (tmp_path / name).write_bytes(data)
        assert read_given("tokenizer.path", str(tmp_path / name)) == data
    assert read_given("tokenizer.path", str(tmp_path)) == data


@pytest.mark.parametrize(
    "content", [b"", b'{"text": "a"}\n{"text": "b"}\n', b"{}", b"7", b"null", b"\xff", b"[" * 10_000]
)
def test_what_is_no_tokenizer_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "en.jsonl").write_bytes(content)
    path, give = str(tmp_path / "en.jsonl"), "give a tokenizer.json, or a folder that has one"
    for key, otherwise in (("--tokenizer", ""), ("tokenizer.path", TRAIN)):
        with pytest.raises(UserError) as caught:
            read_given(key, path, otherwise)
        assert str(caught.value) == f"{key}: {path}: not a tokenizer.json; {give}{otherwise}"
        for absent in (tmp_path, tmp_path / "absent", tmp_path / "absent.json"):
            with pytest.raises(UserError) as caught:
                read_given(key, str(absent), otherwise)
            assert str(caught.value) == f"{key}: {absent}: no such file; {give}{otherwise}"


@pytest.mark.parametrize(("command", "option"), [("shard", "--tokenizer"), ("tokenizer", "--path")])
def test_a_commands_mistake_names_its_option(command: str, option: str, tmp_path: Path) -> None:
    (tmp_path / "en.jsonl").write_text('{"text": "a"}\n')
    arguments = [
        command,
        str(tmp_path / "en.jsonl"),
        str(tmp_path / "out"),
        option,
        str(tmp_path / "en.jsonl"),
    ]
    result = CliRunner().invoke(build_cli(), arguments)
    assert isinstance(result.exception, UserError)
    assert str(result.exception).startswith(f"{option}: {tmp_path}/en.jsonl: not a tokenizer.json; give a ")
    assert ("to train one" in str(result.exception)) == (command == "tokenizer")
    assert not (tmp_path / "out").exists(), "before any work"


def test_a_given_tokenizer_is_measured_like_a_trained_one(tmp_path: Path) -> None:
    trained = json.loads(build(tmp_path / "trained", corpus())["stats.json"])
    path = str(tmp_path / "trained/tokenizer")
    files = build(tmp_path / "given", corpus(), path=path)
    stats = json.loads(files["stats.json"])
    assert stats.pop("trained_on") == {"docs": 0, "bytes": 0, "sources": {}}
    assert stats.pop("origins") == trained.pop("origins")  # all of train is looked at in both
    trained.pop("trained_on")
    assert stats == trained
    own = (tmp_path / "trained/tokenizer/tokenizer_config.json").read_bytes()
    assert files["tokenizer_config.json"] == own


def test_its_own_end_of_documents_is_used_and_reported(tmp_path: Path) -> None:
    from corpusmill.pipeline.engine.stage import Context
    from corpusmill.pipeline.tokenizer.stage import Tokenizer

    data = train(corpus()["text"], TokenizerParams(vocab_size=300, eos_token="</s>"))
    (tmp_path / "mine.json").write_bytes(data)
    made, here = prepared(tmp_path, corpus(), path=str(tmp_path / "mine.json"))
    logged: list[str] = []
    Tokenizer(made).run(Context(**{**here.__dict__, "log": logged.append}))
    assert "tokenizer: documents end with </s>, the given tokenizer's own" in logged
    stats = json.loads((tmp_path / "tokenizer/stats.json").read_text())
    assert stats["eos_token"] == "</s>" and stats["eos_id"] == 0


def test_mistakes_take_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    data = train(corpus()["text"], TokenizerParams(vocab_size=300, eos_token="<stop>"))
    (tmp_path / "odd.json").write_bytes(data)
    for name, reason in (
        ("bad", r"bad\.json: not a tokenizer\.json"),
        ("odd", "set tokenizer.eos_token to its own: <stop>"),
    ):
        with pytest.raises(UserError, match=reason) as caught:
            build(tmp_path / name, corpus(), path=str(tmp_path / f"{name}.json"))
        assert "\n" not in str(caught.value)
