"""A server in a thread, and clients: plain HTTP with the standard library, which sends what it is given and nothing more."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from corpusmill.train.generate.chat import Chat
from corpusmill.train.generate.constrain import Constraints
from corpusmill.train.generate.generate import Opened
from corpusmill.train.generate.serve.app import Served
from corpusmill.train.generate.serve.server import Server, allowed_hosts, listen, place
from corpusmill.train.generate.serve.worker import Worker

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Without the end-of-text token a text goes on to the end of the context.
ENDLESS = {"logit_bias": {"0": -100}, "max_tokens": 10**6}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of an error in OpenAI's form."""
        found = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"} and "\n" not in found["message"]
        return str(found["message"])

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of a stream that came to its end."""
        lines = [part for part in self.body.decode().split("\n\n") if part and not part.startswith(":")]
        assert lines[-1] == "data: [DONE]" and all(line.startswith("data: ") for line in lines)
        return [json.loads(line[6:]) for line in lines[:-1]]


class Running(NamedTuple):
    url: str
    port: int
    served: Served
    server: Server
    thread: threading.Thread

    def ask(
        self, path: str, body: Any = None, method: str | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """`body`: a value to send as JSON, or bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        declared = {} if data is None else {"Content-Type": "application/json"}
        connection.request(
            method or ("GET" if data is None else "POST"), path, data, {**declared, **(headers or {})}
        )
        response = connection.getresponse()
        found = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return found

    def metric(self, name: str) -> float:
        """The sum over all labels."""
        lines = self.ask("/metrics").body.decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((f"corpusmill_{name} ", f"corpusmill_{name}{{"))
        )

    def begin(self, body: Any, **options: Any) -> socket.socket:
        """A stream of `body`'s completion, of which the first bytes have come."""
        found = self.connect(**options)
        data = json.dumps({"stream": True, **body}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        found.sendall(head.encode() + data)
        assert found.recv(12) == b"HTTP/1.1 200"
        return found

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        found = socket.socket()
        if receive_buffer:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        found.settimeout(300)
        found.connect(("127.0.0.1", self.port))
        return found


@contextmanager
def running(
    opened: Opened,
    rows: int = 4,
    queue: int = 64,
    template: str | None = None,
    send_buffer: int | None = None,
    adapters: Sequence[str] = (),
) -> Iterator[Running]:
    listener = listen("127.0.0.1", 0)
    if send_buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    chat = Chat(opened, template)
    constraints = Constraints(opened.tokenizer, opened.runner.vocab_size, [opened.runner.eos_id, *chat.ends])
    served = Served(
        opened, chat, Worker(opened, rows, queue), "tiny", hosts=allowed_hosts("127.0.0.1", listener),
        constraints=constraints, adapters=adapters,
    )  # fmt: skip
    server = Server(served)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield Running(place(listener), listener.getsockname()[1], served, server, thread)
    finally:
        served.worker.cancel_all()
        server.should_exit = True
        thread.join(120)
        listener.close()
    assert not thread.is_alive()
    assert served.worker.error is None
    metrics = served.worker.metrics
    assert metrics.accepted == sum(metrics.ended.values()) and metrics.active == metrics.waiting == 0
    assert served.worker.held == 0


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for something to become true."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it did not come about"
        time.sleep(0.01)
