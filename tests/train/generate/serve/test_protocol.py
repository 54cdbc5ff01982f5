"""Details of OpenAI's protocol and of HTTP: what refusals repeat, where tokens begin, control tokens as stops, who may ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from corpusmill.train.generate.serve.protocol import Hosts
from corpusmill.train.generate.serve.server import allowed_hosts, listen
from tests.train.generate.models import BYTES, opened
from tests.train.generate.serve.running import CHATML, Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    torch.set_num_threads(1)
    with running(opened(), template=CHATML) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a", "x\x1b[31m\n" + "y" * 10_000: 1}),
        ("/v1/completions", {"prompt": "a", "model": "x\x1b[31m\n" + "y" * 10_000}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a", "x\x1b\n" + "y" * 10_000: 1}]},
        ),
        ("/v1/models/x%1b%0a" + "y" * 10_000, None),
        ("/x%1b%0a" + "y" * 10_000, None),
    ],
    ids=["parameter", "model", "key of a message", "model's address", "address"],
)
def test_refusals_repeat_a_short_and_printable_part_of_what_was_sent(
    server: Running, path: str, body: Any
) -> None:
    answer = server.ask(path, body)
    assert answer.status in (400, 404) and answer.error.isprintable() and len(answer.error) < 400


def test_offsets_count_the_characters_of_the_text(server: Running) -> None:
    """Tokens of parts of characters, too: each begins where its character does."""
    body = {
        "prompt": "aü日the in",
        "echo": True,
        "logprobs": 0,
        "max_tokens": 30,
        "temperature": 1.5,
        "seed": 2,
    }
    for stream in (False, True):
        answer = server.ask("/v1/completions", {**body, "stream": stream})
        choices = [event["choices"][0] for event in answer.events] if stream else answer.json["choices"]
        text = "".join(choice["text"] for choice in choices)
        tokens = [token for choice in choices for token in choice["logprobs"]["tokens"]]
        offsets = [offset for choice in choices for offset in choice["logprobs"]["text_offset"]]
        # a, two bytes of ü, three of 日, the, blank, in
        assert offsets[:9] == [0, 1, 1, 2, 2, 2, 3, 6, 7] and offsets == sorted(offsets)
        assert len(offsets) == len(tokens)
        for token, offset in zip(tokens, offsets, strict=True):
            if not token.startswith("bytes:") and not token.startswith("<|"):
                assert text[offset : offset + len(token)] == token


def test_a_control_token_may_be_a_stop(server: Running) -> None:
    """It is never a part of the text, in which it could be found."""
    end = {"logit_bias": {str(BYTES - 1): 100}, "max_tokens": 5, "seed": 1}
    (free,) = server.ask("/v1/completions", {"prompt": "a", **end}).json["choices"]
    assert free["finish_reason"] == "length"
    answer = server.ask("/v1/completions", {"prompt": "a", "stop": "<|im_end|>", **end}).json
    assert answer["choices"][0]["finish_reason"] == "stop" and answer["usage"]["completion_tokens"] == 1
    start = {"logit_bias": {str(BYTES - 2): 100}, "max_tokens": 5, "stop": ["<|im_start|>"]}
    chat = {"messages": [{"role": "user", "content": "x"}], **start}
    assert server.ask("/v1/chat/completions", chat).json["choices"][0]["finish_reason"] == "stop"


def test_chunks_before_the_usage_say_that_they_have_none(server: Running) -> None:
    body = {"prompt": "a", "max_tokens": 4, "stream": True}
    for path, given in (
        ("/v1/completions", body),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "stream": True},
        ),
    ):
        *parts, last = server.ask(path, {**given, "stream_options": {"include_usage": True}}).events
        assert last["usage"]["total_tokens"] > 0 and parts
        assert all(part["usage"] is None for part in parts)
        assert all("usage" not in part for part in server.ask(path, given).events)


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/v1/models", "/nowhere", "/v1/completions"])
def test_no_answer_is_taken_for_another_type(server: Running, path: str) -> None:
    assert server.ask(path).headers["x-content-type-options"] == "nosniff"
    assert server.ask(path, headers={"Host": "evil.example"}).headers["x-content-type-options"] == "nosniff"


def test_a_server_for_all_machines_answers_addresses_and_names_that_it_knows(server: Running) -> None:
    """A page of another site comes by a name of its own (DNS rebinding)."""
    with listen("0.0.0.0", 0) as everywhere, listen("127.0.0.1", 0) as here:
        found = allowed_hosts("0.0.0.0", everywhere, ["Model.Example"])
        for host in ("192.168.1.7", "fe80::1", "10.0.0.1", "127.0.0.1", "localhost", "model.example"):
            assert found.allow(host), host
        for host in ("evil.example", "192.168.1.7.evil.example", "", "1.2.3", "model.example.evil"):
            assert not found.allow(host), host
        own = allowed_hosts("127.0.0.1", here, ["proxy.example"])
        assert own.allow("proxy.example") and not own.allow("192.168.1.7")
    assert Hosts(frozenset({"a"}), True).words() == "a or an IP address"
