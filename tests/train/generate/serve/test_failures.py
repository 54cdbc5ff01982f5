"""A request that cannot be answered, or only at the edge of what numbers hold, harms no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from corpusmill.train.generate.generate import Texts
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.sample import Penalties
from tests.train.generate.models import opened
from tests.train.generate.serve.running import CHATML, Running, running, until


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    torch.set_num_threads(1)
    with running(opened(), template=CHATML) as found:
        yield found


def still_answers(server: Running) -> None:
    assert server.ask("/health").json == {"status": "ok"}
    answer = server.ask("/v1/completions", {"prompt": "the", "max_tokens": 5, "seed": 1})
    assert answer.status == 200 and answer.json["choices"][0]["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 1e-50},
        {"temperature": 1e-50, "top_k": 5},
        {"temperature": 5e-324, "top_p": 0.5, "logprobs": 3},
        {"temperature": 1e-6, "typical_p": 0.5},
        {"top_p": 1e-50},
        {"top_p": 5e-324, "top_k": 7},
        {"typical_p": 1e-50},
        {"typical_p": 1e-50, "top_p": 1e-50, "min_p": 0.9999999999999999},
        {"repetition_penalty": 0.01, "temperature": 0.00002},
        {"repetition_penalty": 100, "frequency_penalty": 2, "presence_penalty": -2},
    ],
    ids=str,
)
def test_values_at_the_edge_of_numbers_give_a_text(server: Running, values: dict[str, Any]) -> None:
    body = {"prompt": "the in", "max_tokens": 8, "seed": 3, "n": 2, **values}
    answer = server.ask("/v1/completions", body)
    assert answer.status == 200, answer.body
    assert all(choice["text"] for choice in answer.json["choices"])
    still_answers(server)


@pytest.mark.parametrize("value", [1e-40, 0.0099, 100.1, 1e300])
def test_a_repetition_penalty_out_of_bounds_is_refused(server: Running, value: float) -> None:
    answer = server.ask("/v1/completions", {"prompt": "a", "repetition_penalty": value})
    assert answer.status == 400 and answer.error.startswith("repetition_penalty: input should be")
    still_answers(server)


def test_a_temperature_near_0_gives_the_text_of_0(server: Running) -> None:
    texts = [
        server.ask("/v1/completions", {"prompt": "the in", "max_tokens": 20, "temperature": t}).json["choices"][0]["text"]
        for t in (0, 1e-50, 9e-6)
    ]  # fmt: skip
    assert len(set(texts)) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_of_no_numbers_fails_its_texts_and_not_the_server(stream: bool) -> None:
    broken = opened()
    with torch.no_grad():
        broken.runner.model.norm.weight.fill_(float("nan"))
    with running(broken) as server:
        for body in (
            {},
            {"temperature": 0},
            {"n": 3, "logprobs": 2},
            {"top_p": 0.5, "repetition_penalty": 2.0},
        ):
            answer = server.ask("/v1/completions", {"prompt": "a", "stream": stream, **body})
            if stream:
                assert answer.status == 200 and b'"code": "failed"' in answer.body
            else:
                assert answer.status == 500 and answer.json["error"]["code"] == "failed"
                assert answer.error == "the text could not be generated; the server's log says why"
            assert server.ask("/health").status == 200
        ended = server.served.worker.metrics.ended
        until(lambda: server.metric("texts_active") == 0)
        assert set(ended) <= {"failed", "cancelled"} and ended["failed"] >= 4


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"guided_regex": "((a{100}){100}){100}"}, "guided_regex: takes too much computing"),
        ({"guided_regex": "[bc]{3}((a{100}){100}){100}"}, "takes too much computing"),
        ({"guided_json": {"$ref": "#"}}, "guided_json: no text can be what is asked for"),
    ],
)
def test_a_constraint_that_cannot_be_kept_to_is_refused(
    server: Running, body: dict[str, Any], words: str
) -> None:
    answer = server.ask("/v1/completions", {"prompt": "a", "max_tokens": 30, **body})
    assert answer.status == 400 and words in answer.error
    still_answers(server)


class Panic(BaseException):
    """As pyo3's PanicException: no `Exception`."""


@pytest.mark.parametrize("error", [Panic, MemoryError, ValueError])
@pytest.mark.parametrize("place", ["penalties", "begin", "piece", "constraint"])
def test_an_error_within_one_request_ends_that_one_alone(
    server: Running, place: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    def fail(*_: Any) -> Any:
        raise error("SECRET")

    body: dict[str, Any] = {"prompt": "SECRET", "max_tokens": 6}
    if place == "penalties":
        monkeypatch.setattr(Penalties, "apply", fail)
        body["presence_penalty"] = 1
    elif place == "constraint":
        body["guided_regex"] = "[ab]{4}"
        monkeypatch.setattr(
            server.served,
            "_constrain",
            lambda _, requests: [setattr(one, "allowed", fail) for one in requests],
        )
    else:
        method = getattr(Texts, place)

        def sometimes(self: Texts, of: Any) -> Any:
            request = of if isinstance(of, Request) else of.request
            return fail() if request.sampling.max_tokens == 6 else method(self, of)

        monkeypatch.setattr(Texts, place, sometimes)
    other = server.begin({"prompt": "b", "max_tokens": 200, "seed": 5})
    answer = server.ask("/v1/completions", body)
    assert answer.status == 500 and answer.json["error"]["code"] == "failed"
    found = b""
    while b"[DONE]" not in found and (part := other.recv(65536)):
        found += part
    assert b"[DONE]" in found and b"error" not in found
    monkeypatch.undo()
    still_answers(server)
    logged = "".join(capfd.readouterr())
    assert f"{error.__name__} at " in logged and "SECRET" not in logged
