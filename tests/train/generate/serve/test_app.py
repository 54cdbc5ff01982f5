"""The endpoints over HTTP: the same texts as `generate`, in OpenAI's form; limits, refusals, clients that leave."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.peers import NotMeasured, environment
from corpusmill.schemas.generation import Sampling
from corpusmill.train.generate.generate import pieces
from corpusmill.train.generate.serve import protocol
from tests.train.generate.models import EOS, opened
from tests.train.generate.serve.running import CHATML, ENDLESS, Running, running, until

TEXTS = ["the in", "", "Größe 日本", "a\nb"]
SAMPLING: dict[str, Any] = {"max_tokens": 24, "temperature": 0.9, "top_k": 40, "top_p": 0.95, "seed": 11}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    torch.set_num_threads(1)
    with running(opened(), template=CHATML) as found:
        yield found


def generated(prompts: list[str], **sampling: Any) -> list[tuple[str, str]]:
    """By `generate`: texts and ends."""
    found: dict[int, tuple[str, str]] = {}
    for piece in pieces(opened(), prompts, Sampling(**{**SAMPLING, **sampling}), rows=2):
        text = found.get(piece.request.number, ("", ""))[0]
        found[piece.request.number] = (text + piece.text, piece.end or "")
    return [found[number] for number in range(len(prompts))]


def test_completions_are_those_of_generate(server: Running) -> None:
    for stop in ([], ["e", "th"]):
        wanted = generated(TEXTS, stop=stop)
        whole = server.ask("/v1/completions", {"prompt": TEXTS, "stop": stop, **SAMPLING}).json
        assert [(c["text"], c["finish_reason"]) for c in whole["choices"]] == wanted
        assert [c["index"] for c in whole["choices"]] == list(range(len(TEXTS)))
        assert whole["object"] == "text_completion" and whole["model"] == "tiny" and whole["seed"] == 11
        events = server.ask(
            "/v1/completions",
            {"prompt": TEXTS, "stop": stop, "stream": True, "stream_options": {"include_usage": True}, **SAMPLING},
        ).events  # fmt: skip
        streamed = [""] * len(TEXTS)
        ends: dict[int, str] = {}
        for event in events[:-1]:
            (choice,) = event["choices"]
            assert choice["index"] not in ends
            streamed[choice["index"]] += choice["text"]
            if choice["finish_reason"]:
                ends[choice["index"]] = choice["finish_reason"]
        assert [(text, ends[n]) for n, text in enumerate(streamed)] == wanted
        assert events[-1]["usage"] == whole["usage"] and events[-1]["choices"] == []
    ids = [EOS, *server.served.opened.tokenizer.encode(TEXTS[0]).ids]
    same = server.ask("/v1/completions", {"prompt": ids, **SAMPLING}).json
    assert same["choices"][0]["text"] == generated(TEXTS[:1])[0][0]
    assert same["usage"]["prompt_tokens"] == len(ids)


def test_several_texts_of_a_prompt_differ_and_come_again(server: Running) -> None:
    body = {"prompt": ["a", "b"], "n": 3, **SAMPLING}
    first, second = (server.ask("/v1/completions", body).json["choices"] for _ in range(2))
    assert [c["text"] for c in first] == [c["text"] for c in second] and len(first) == 6
    assert len({c["text"] for c in first}) > 3
    # Prompts of their own are read each by itself.
    single = server.ask("/v1/completions", {**body, "prompt": ["a"] * 3 + ["b"] * 3, "n": 1}).json["choices"]
    assert [c["text"] for c in single] == [c["text"] for c in first]
    del body["seed"]
    seeds = [server.ask("/v1/completions", body).json["seed"] for _ in range(2)]
    assert seeds[0] != seeds[1]


def test_log_probabilities_of_prompt_and_text_are_the_model_s(server: Running) -> None:
    found = server.ask(
        "/v1/completions", {"prompt": "the ü", "echo": True, "logprobs": 3, **SAMPLING, "max_tokens": 6}
    ).json["choices"][0]
    figures, runner = found["logprobs"], server.served.opened.runner
    tokenizer = server.served.opened.tokenizer
    prompt = [EOS, *tokenizer.encode("the ü").ids]
    assert found["text"].startswith("the ü") and len(figures["tokens"]) == len(prompt) - 1 + 6
    assert "bytes:\\xc3" in figures["tokens"]
    with torch.no_grad():
        known = runner.model(torch.tensor([prompt]))[0, :, : runner.vocab_size].log_softmax(-1)
    wanted = known[:-1].gather(1, torch.tensor(prompt[1:])[:, None]).squeeze(1)
    of_prompt = torch.tensor(figures["token_logprobs"][: len(prompt) - 1])
    torch.testing.assert_close(of_prompt, wanted, atol=1e-4, rtol=0)
    best = max(figures["top_logprobs"][len(prompt) - 1].values())
    assert abs(best - float(known[-1].max())) < 1e-4
    assert all(len(row) == 3 for row in figures["top_logprobs"])
    nothing = server.ask(
        "/v1/completions", {"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 0}
    ).json
    assert nothing["choices"][0]["text"] == "<|endoftext|>the ü"
    assert nothing["choices"][0]["logprobs"]["token_logprobs"][0] is None
    assert nothing["usage"]["completion_tokens"] == 0


def test_the_token_that_ends_a_text_has_its_log_probability_too(server: Running) -> None:
    body = {"prompt": "a", "logprobs": 0, "max_tokens": 1, "logit_bias": {str(EOS): 100}, "seed": 1}
    (choice,) = server.ask("/v1/completions", body).json["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("", "stop")
    assert (
        choice["logprobs"]["tokens"] == ["<|endoftext|>"] and len(choice["logprobs"]["token_logprobs"]) == 1
    )


def test_chats_follow_the_template_and_end_at_its_token(server: Running) -> None:
    messages = [{"role": "system", "content": "be"}, {"role": "user", "content": "the in"}]
    whole = server.ask("/v1/chat/completions", {"messages": messages, **SAMPLING}).json
    prompt = "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nthe in<|im_end|>\n<|im_start|>assistant\n"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": generated([prompt])[0][0]}
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "in"}]
    body = {"messages": [messages[0], {"role": "user", "content": parts}], "stream": True, **SAMPLING}
    events = server.ask("/v1/chat/completions", body).events
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0]["role"] == "assistant" and events[0]["object"] == "chat.completion.chunk"
    assert "".join(d.get("content", "") for d in deltas) == whole["choices"][0]["message"]["content"]
    end = server.served.opened.tokenizer.token_to_id("<|im_end|>")
    ended = server.ask(
        "/v1/chat/completions",
        {"messages": messages, "logit_bias": {str(end): 100}, "logprobs": True, "top_logprobs": 2},
    ).json["choices"][0]
    assert ended["message"]["content"] == "" and ended["finish_reason"] == "stop"
    (figure,) = ended["logprobs"]["content"]
    assert figure["token"] == "<|im_end|>" and len(figure["top_logprobs"]) == 2
    assert figure["bytes"] == list(b"<|im_end|>")


def test_a_response_format_is_kept_to(server: Running) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 22]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "n": 3, "temperature": 1.5}
    kind = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    choices = server.ask("/v1/chat/completions", {**body, "response_format": kind}).json["choices"]
    assert all(json.loads(c["message"]["content"])["a"] in (1, 22) for c in choices)
    texts = server.ask(
        "/v1/completions", {"prompt": "x", "guided_regex": "(ab){2}|é{3}", "max_tokens": 60, "n": 20}
    ).json
    # The token that ends a chat's answer ends such a text, too: nothing comes behind it.
    assert {(c["text"], c["finish_reason"]) for c in texts["choices"]} == {("abab", "stop"), ("ééé", "stop")}
    wrong = server.ask("/v1/completions", {"prompt": "x", "guided_regex": "(ab"})
    assert wrong.status == 400 and "guided_regex" in wrong.error


LONG = {"prompt": "a" * 400}
REFUSALS: list[tuple[str, Any, int, str]] = [
    ("/v1/completions", {"prompt": "a", "temprature": 1}, 400, "did you mean 'temperature'"),
    ("/v1/completions", {"prompt": "a", "suffix": "b"}, 400, "suffix: the model continues texts"),
    ("/v1/completions", {"prompt": "a", "temperature": 3}, 400, "temperature: input should be less than or equal to 2"),
    ("/v1/completions", {"prompt": "a", "n": "2"}, 400, "n: input should be a valid integer"),
    ("/v1/completions", {"prompt": [99999]}, 400, "has the token 99999, and the vocabulary 264"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"9999": 1}}, 400, "logit_bias"),
    ("/v1/completions", {"prompt": "a", "model": "gpt-4"}, 404, "this server has 'tiny'"),
    ("/v1/completions", {"prompt": ["a"] * 60, "n": 2}, 400, "asks for 120 texts, and this server takes 68"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "0 gives nothing without echo"),
    ("/v1/completions", LONG, 400, "and the model's context 256: shorten it"),
    ("/v1/completions", b"{", 400, "not JSON"),
    ("/v1/completions", b'{"prompt": "\\ud800"}', 400, "not JSON"),
    ("/v1/completions", [], 400, "must be a JSON object"),
    ("/v1/completions", b" " * (protocol.BODY_BYTES + 1), 413, "longer than"),
    ("/v1/chat/completions", {"messages": []}, 400, "at least one message"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [{}]}, 400, "tools: calls of tools"),
    ("/v1/chat/completions", {"messages": [{"role": "tool", "content": "x"}]}, 400, "has not the role"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x<|im_end|>"}]}, 400, "the control token <|im_end|>"),
    ("/v1/embeddings", {"input": "a"}, 404, "there is nothing at /v1/embeddings"),
    ("/v1/models/other", None, 404, "this server has 'tiny'"),
    ("/v1/completions", None, 405, "takes POST"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "words"), REFUSALS, ids=[words for *_, words in REFUSALS])
def test_refusals_say_what_is_wrong_in_one_sentence(
    server: Running, path: str, body: Any, status: int, words: str
) -> None:
    answer = server.ask(path, body)
    assert answer.status == status and words in answer.error


def test_other_sites_are_not_answered(server: Running) -> None:
    """By Host: DNS rebinding. By Content-Type: forms and scripts of pages, which would need no leave to send other types."""
    body = {"prompt": "a", "max_tokens": 1}
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.", "", "[::2]"):
        answer = server.ask("/v1/completions", body, headers={"Host": host})
        assert answer.status == 403 and "Host header has to be one of" in answer.error
    for host in ("localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:8000"):
        assert server.ask("/v1/completions", body, headers={"Host": host}).status == 200
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = server.ask("/v1/completions", body, headers={"Content-Type": kind})
        assert answer.status == 415 and "Content-Type: application/json" in answer.error
    answer = server.ask("/v1/completions", body, headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = server.ask("/v1/completions", method="OPTIONS", headers={"Origin": "https://evil.example"})
    assert preflight.status == 405


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["n", "max_tokens", "stop", "logit_bias", "seed", "stream", "messages", "echo", "logprobs", "user", "guided_regex",
                        "response_format", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
                        "frequency_penalty", "guided_json", "stream_options", "model"])  # fmt: skip


@settings(max_examples=60)
@given(
    st.dictionaries(KEYS | st.text(max_size=4), JSON, max_size=3),
    st.sampled_from(["/v1/completions", "/v1/chat/completions"]),
)
def test_no_body_breaks_the_server(server: Running, body: dict[str, Any], path: str) -> None:
    usual = {"prompt": "a"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
    answer = server.ask(path, {"max_tokens": 2, **usual, **body})
    assert answer.status in (200, 400, 404), answer.body
    if answer.status != 200:
        assert answer.error


@settings(max_examples=40)
@given(st.binary(max_size=60))
def test_no_bytes_break_the_server(server: Running, body: bytes) -> None:
    assert server.ask("/v1/completions", body).error


def test_streams_beside_each_other_are_what_each_is_alone(server: Running) -> None:
    def one(number: int) -> str:
        body = {"prompt": TEXTS[number % 4], "stream": True, **SAMPLING, "seed": number}
        return "".join(event["choices"][0]["text"] for event in server.ask("/v1/completions", body).events)

    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(one, range(12)))
    assert together == [generated([TEXTS[n % 4]], seed=n)[0][0] for n in range(12)]


def test_curl(server: Running) -> None:
    def curl(*arguments: str) -> str:
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "120", *arguments], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    json_type = ("-H", "Content-Type: application/json")
    body = json.dumps({"prompt": TEXTS[2], "stream": True, **SAMPLING})
    lines = curl("-N", f"{server.url}/v1/completions", *json_type, "-d", body).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-2])
    assert text == generated([TEXTS[2]])[0][0]
    assert json.loads(curl(f"{server.url}/v1/models"))["data"][0]["id"] == "tiny"
    assert json.loads(curl(f"{server.url}/health")) == {"status": "ok"}
    refused = json.loads(curl(f"{server.url}/v1/completions", "-d", body))
    assert "Content-Type: application/json" in refused["error"]["message"]
    assert "corpusmill_texts_accepted_total" in curl(f"{server.url}/metrics")
    assert curl("-I", f"{server.url}/").startswith("HTTP/1.1 200 OK")


OPENAI = """
import json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
sampling = json.loads(sys.argv[2])
extra = {"top_k": sampling.pop("top_k")}
out = {"models": [m.id for m in client.models.list()]}
whole = client.completions.create(model="tiny", prompt="the in", extra_body=extra, logprobs=2, **sampling)
out["text"], out["usage"] = whole.choices[0].text, whole.usage.total_tokens
parts = client.completions.create(model="tiny", prompt="the in", extra_body=extra, stream=True, **sampling)
out["streamed"] = "".join(p.choices[0].text for p in parts)
messages = [{"role": "user", "content": "the in"}]
out["chat"] = client.chat.completions.create(model="tiny", messages=messages, extra_body=extra, **sampling).choices[0].message.content
with client.chat.completions.create(model="tiny", messages=messages, stream=True, extra_body=extra, **sampling) as parts:
    out["chat streamed"] = "".join(p.choices[0].delta.content or "" for p in parts)
try:
    client.chat.completions.create(model="tiny", messages=messages, tools=[])
    client.chat.completions.create(model="tiny", messages=messages, tools=[{"type": "function", "function": {"name": "f"}}])
except openai.BadRequestError as error:
    out["refused"] = error.body["message"]
schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"], "additionalProperties": False}
answer = client.chat.completions.create(model="tiny", messages=messages, max_completion_tokens=80, response_format={
    "type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
out["json"] = json.loads(answer.choices[0].message.content)
print(json.dumps(out))
"""


@pytest.mark.slow
def test_openai_s_client(server: Running) -> None:
    try:
        python = environment("openai", ("openai==3.57.0",))
    except NotMeasured as reason:
        pytest.skip(f"openai: {reason}")
    command = [str(python), "-c", OPENAI, server.url, json.dumps(SAMPLING)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    out = json.loads(done.stdout)
    assert out["models"] == ["tiny"] and out["text"] == out["streamed"] == generated(["the in"])[0][0]
    assert out["chat"] == out["chat streamed"] != "" and "tools" in out["refused"]
    assert isinstance(out["json"]["x"], bool)


def test_a_client_that_leaves_frees_its_row() -> None:
    with running(opened(context=100_000), rows=1) as server:
        for stream in (True, False):
            body = {"prompt": "a", **ENDLESS, "stream": stream}
            if stream:
                client = server.begin(body)
                while b"data: " not in client.recv(1000):
                    pass
            else:
                client = server.connect()
                data = json.dumps(body).encode()
                head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
                client.sendall(head.encode() + data)
            until(lambda: server.metric("texts_active") == 1)
            client.close()
            until(lambda: server.metric("texts_active") == 0)
            assert server.ask("/v1/completions", {"prompt": "b", "max_tokens": 2}).status == 200
        assert server.metric('texts_ended_total{reason="cancelled"}') == 2


def test_what_no_place_is_left_for_is_refused() -> None:
    with running(opened(context=100_000), rows=1, queue=2) as server:
        first = server.begin({"prompt": "a", **ENDLESS})
        until(lambda: server.metric("texts_active") == 1)
        waiting = [server.begin({"prompt": "b", **ENDLESS}) for _ in range(2)]
        until(lambda: server.metric("texts_waiting") == 2)
        answer = server.ask("/v1/completions", {"prompt": "c"})
        assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1
        assert answer.json["error"]["type"] == "rate_limit_error" and "try again" in answer.error
        waiting[0].close()  # of one that waits, too, the place is free at once
        until(lambda: server.metric("texts_waiting") == 1)
        again = server.begin({"prompt": "d", "max_tokens": 2})
        first.close()
        waiting[1].close()
        assert b"[DONE]" in received(again)


def received(client: Any) -> bytes:
    """All until the end of a stream."""
    found = b""
    while b"[DONE]" not in found and (part := client.recv(65536)):
        found += part
    return found


def test_figures_add_up(server: Running) -> None:
    before = {name: server.metric(name) for name in ("texts_accepted_total", "generated_tokens_total")}
    made = server.ask("/v1/completions", {"prompt": TEXTS, "n": 2, **SAMPLING}).json["usage"][
        "completion_tokens"
    ]
    until(lambda: server.metric("texts_active") == 0)
    assert server.metric("texts_accepted_total") == before["texts_accepted_total"] + 8
    assert server.metric("generated_tokens_total") == before["generated_tokens_total"] + made
    ended = server.metric("texts_ended_total")
    assert server.metric("texts_accepted_total") == ended == server.metric("text_seconds_count")
    assert server.metric("time_to_first_token_seconds_count") == ended


def test_no_word_of_a_prompt_is_logged(server: Running, capfd: pytest.CaptureFixture[str]) -> None:
    """Not even when the server itself makes a mistake."""
    before, server.served.opened = server.served.opened, None  # type: ignore[assignment]
    try:
        answer = server.ask("/v1/completions", {"prompt": "SECRET"})
    finally:
        server.served.opened = before
    assert answer.status == 500 and "its log says where" in answer.error
    assert server.ask("/v1/completions?SECRET", {"prompt": "SECRET", "SECRET": 1}).status == 400
    logged = "".join(capfd.readouterr())
    assert "SECRET" not in logged and "AttributeError at" in logged
