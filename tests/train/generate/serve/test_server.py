"""The process and its clients: signals, ports, and clients that break off, say nothing, or read nothing."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.config import load
from corpusmill.common.errors import UserError, WorkError
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.generate.chat import Chat
from corpusmill.train.generate.serve import protocol, server
from corpusmill.train.generate.serve.app import Served
from corpusmill.train.generate.serve.server import allowed_hosts, is_loopback, listen
from corpusmill.train.generate.serve.worker import Worker
from corpusmill.train.trainer import train
from tests.conftest import IMPORT_PATH, ROOT
from tests.train.generate.models import opened
from tests.train.generate.serve.running import ENDLESS, Running, running, until


@pytest.fixture
def run(write_config: Callable[..., Path], tmp_path: Path) -> Path:
    """A run of one step."""
    file = write_config(**{"schedule.steps": 1, "schedule.warmup_steps": 0})
    train(load(TrainConfig, file))
    return tmp_path / "run"


@contextmanager
def process(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Running]]:
    """`corpusmill serve` on a free port, when it is ready."""
    command = [sys.executable, "-m", "corpusmill", "serve", str(run), "--port", "0", *options]
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1"}
    found = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert found.stdout is not None
        url = found.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url), url
        yield found, Running(url, int(url.rpartition(":")[2]), None, None, None)  # type: ignore[arg-type]
    finally:
        if found.poll() is None:
            found.kill()
        found.wait()


def test_a_signal_lets_texts_end_and_a_second_one_cancels_them(run: Path) -> None:
    with process(run, "--batch", "2", "--context", "100000") as (one, client):
        assert client.ask("/v1/models").json["data"][0]["id"] == "tiny"
        short = client.ask("/v1/completions", {"prompt": "ab", "max_tokens": 3, "seed": 1})
        assert short.status == 200 and short.json["usage"]["completion_tokens"] <= 3
        plain = client.ask(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
        )
        assert plain.status == 200
        stream = client.begin({"prompt": "a", **ENDLESS})
        one.send_signal(signal.SIGTERM)
        with pytest.raises(OSError):
            for _ in range(10**6):
                client.connect().close()
                time.sleep(0.01)
        one.send_signal(signal.SIGINT)
        rest = b""
        while part := stream.recv(65536):
            rest += part
        assert b"server_stopping" in rest
        out, err = one.communicate(timeout=120)
    assert one.returncode == 0, err
    assert "no chat_template.jinja beside the tokenizer" in err
    assert re.search(r"^stopping: 1 text may go on for 10 s; Ctrl-C once more cancels them$", err, re.M)
    assert re.search(r"^stopped: 3 texts \(1 cancelled, .*\), [\d,]+ tokens generated$", err, re.M)
    assert "Traceback" not in err and not out


def test_a_port_in_use_is_one_line_before_a_model_is_loaded(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "corpusmill", "serve", str(run), "--port", str(port)]
        env = {**os.environ, "PYTHONPATH": IMPORT_PATH}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"error: --host 127.0.0.1 --port {port}: Address already in use; choose another\n"


def test_only_loopback_is_guarded_by_names() -> None:
    with listen("localhost", 0) as here, listen("0.0.0.0", 0) as everywhere:
        assert is_loopback(here) and not is_loopback(everywhere)
        assert allowed_hosts("localhost", here).names >= {"localhost", "127.0.0.1", "::1"}
        assert (
            not allowed_hosts("localhost", here).addresses and allowed_hosts("0.0.0.0", everywhere).addresses
        )
    with pytest.raises(UserError, match="--host nowhere.invalid: is no address of this machine"):
        listen("nowhere.invalid", 0)


def test_without_the_extra_it_names_it(run: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['corpusmill', 'serve', sys.argv[1]];"
        "from corpusmill.__main__ import main; main()"
    )
    env = {**os.environ, "PYTHONPATH": IMPORT_PATH}
    done = subprocess.run([sys.executable, "-c", code, str(run)], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: serve: needs Starlette and Uvicorn: pip install 'corpusmill[serve]'\n"


def test_broken_clients_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED_SECONDS", 1.0)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 1.0)
    with running(opened(context=20_000), rows=2, send_buffer=8192) as running_one:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        silent = running_one.connect()
        half_head = running_one.connect()
        half_head.sendall(head)
        half_body = running_one.connect()
        half_body.sendall(head + b"Content-Length: 1000\r\n\r\n" + b'{"prompt": ')
        refused = running_one.connect()  # answered before its body came, which does not come
        refused.sendall(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        noise = running_one.connect()
        noise.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no HTTP\r\n\r\n")
        # A stream that is never read: it fills the buffers, and its text is made all the same.
        deaf = running_one.begin(
            {"prompt": "a", **ENDLESS, "max_tokens": 600, "logprobs": 20}, receive_buffer=2048
        )
        served = running_one.ask("/v1/completions", {"prompt": "b", "max_tokens": 4})
        assert served.status == 200
        until(lambda: running_one.metric("texts_ended_total") == 2)
        assert half_body.recv(12) == b"HTTP/1.1 408"
        assert refused.recv(12) == b"HTTP/1.1 404"
        assert noise.recv(12) == b"HTTP/1.1 400"
        for one in (silent, half_head, half_body, refused, noise):
            while more(one):
                pass
        until(lambda: not running_one.server.server_state.connections)  # the deaf one, too
        deaf.close()


@pytest.mark.parametrize("stream", [True, False])
def test_a_text_takes_its_place_until_its_client_has_read_it(stream: bool) -> None:
    """It is kept for the client that long: so never more texts are kept than there are places."""
    with running(opened(context=20_000), rows=1, queue=1, send_buffer=8192) as one:
        slow = one.connect(receive_buffer=2048)
        body = {"prompt": "a", **ENDLESS, "max_tokens": 600, "logprobs": 20, "stream": stream}
        data = json.dumps(body).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        until(lambda: one.metric("texts_ended_total") == 1)
        small = {"prompt": "b", "max_tokens": 2}
        assert one.ask("/v1/completions", {**small, "n": 2}).status == 429
        assert one.ask("/v1/completions", small).status == 200
        found = slow.recv(65536)
        while len(found) < 100_000:  # of about a megabyte
            found += slow.recv(65536)
        slow.close()
        until(lambda: one.ask("/v1/completions", {**small, "n": 2}).status == 200)


def test_a_connection_that_goes_on_asking_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the server finds it between two of its requests."""
    monkeypatch.setattr(server, "STALLED_SECONDS", 1.5)
    with running(opened()) as one:
        connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=300)
        connection.connect()
        connection.auto_open = 0  # it does not connect again
        looks, before = list[float](), one.server._close_stalled
        monkeypatch.setattr(one.server, "_close_stalled", lambda now: (looks.append(now), before(now)))
        while len(looks) < 5:
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b'{"status":"ok"}'
            time.sleep(0.02)
        silent = one.connect()
        assert not more(silent)
        connection.close()


def test_what_connections_are_too_many_for_is_refused_in_openai_s_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(opened()) as running_one:
        monkeypatch.setattr(server, "CONNECTIONS", 3)
        others = [running_one.connect() for _ in range(3)]
        until(lambda: len(running_one.server.server_state.connections) == 3)
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/health", None)):
            answer = running_one.ask(path, body)
            assert answer.status == 503 and answer.error == "as many connections are open as may; try again"
            assert answer.json["error"]["type"] == "server_error" and answer.headers["retry-after"] == "1"
            assert answer.headers["connection"] == "close"
        others.pop().close()
        until(lambda: running_one.ask("/health").status == 200)
        assert running_one.ask("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200
        for one in others:
            one.close()


def test_few_threads_read_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps words of its own, so that on a machine of many cores as many threads would take gigabytes."""
    gate, used = threading.Event(), set[str]()
    asked, to_thread = list[int](), asyncio.to_thread
    with running(opened()) as one:
        prompts = one.served._prompts

        def reading(body: Any) -> list[list[int]]:
            used.add(threading.current_thread().name)
            assert gate.wait(120)
            return prompts(body)

        async def counting(work: Callable[..., Any], *arguments: Any) -> Any:
            asked.append(1)
            return await to_thread(work, *arguments)

        monkeypatch.setattr(one.served, "_prompts", reading)
        monkeypatch.setattr(asyncio, "to_thread", counting)
        with ThreadPoolExecutor(3 * server.THREADS) as pool:
            body = {"prompt": "a", "max_tokens": 1}
            answers = [pool.submit(one.ask, "/v1/completions", body) for _ in range(3 * server.THREADS)]
            until(lambda: len(asked) == 3 * server.THREADS)
            until(lambda: len(used) >= server.THREADS)
            assert one.ask("/health").status == 200  # nothing that waits for a thread holds up the rest
            gate.set()
            assert all(answer.result().status == 200 for answer in answers)
    assert len(used) == server.THREADS


def test_nothing_stays_of_requests_that_are_cancelled_or_broken() -> None:
    """Objects by type, after each of three rounds of clients that leave, break off, or are refused."""
    with running(opened(context=2000), rows=2) as one:

        def trouble() -> None:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            for number in range(8):
                stream = one.begin({"prompt": "a", "n": 2, "stop": ["th", "e"], **ENDLESS})
                whole = one.connect()
                body = json.dumps({"prompt": ["b", "c"], "logprobs": 2, "echo": True, **ENDLESS}).encode()
                whole.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                half_body, half_head, noise = (one.connect() for _ in range(3))
                half_body.sendall(head + b"Content-Length: 1000\r\n\r\n{")
                half_head.sendall(head[: 9 * number])
                noise.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
                assert one.ask("/v1/completions", {"prompt": ["a"] * 60, "n": 2}).status == 400
                for client in (stream, whole, half_body, half_head, noise):
                    if number % 2:  # by a reset
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
            until(lambda: not one.served.worker.open and not one.server.server_state.connections)
            until(lambda: one.metric("texts_active") == 0)

        def counts() -> Counter[str]:
            gc.collect()
            found = (type(found) for found in gc.get_objects())
            return Counter(f"{kind.__module__}.{kind.__name__}" for kind in found)

        trouble()
        before, worker = counts(), one.served.worker
        for _ in range(3):
            trouble()
        assert not worker._open and not worker.held and not worker._texts._texts and not worker.engine.busy
        own = ("corpusmill.", "uvicorn.", "starlette.", "h11.", "asyncio.", "_asyncio.", "tokenizers.")

        def more() -> dict[str, int]:
            grown = counts() - before
            return {kind: count for kind, count in grown.items() if kind.startswith(own)}

        # What a request leaves would be there 24 times; a connection of the tests' own may still be ending.
        until(lambda: max(more().values(), default=0) < 8)


def more(client: socket.socket) -> bool:
    """Whether more came from the server; it may end a connection by a reset."""
    try:
        return bool(client.recv(65536))
    except ConnectionResetError:
        return False


def reachable(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


class Panic(BaseException):
    """As pyo3's PanicException: no `Exception`."""


@pytest.mark.parametrize("kind", [MemoryError, Panic])
def test_an_engine_that_fails_ends_the_server_and_says_where(kind: type[BaseException]) -> None:
    made = opened()
    worker = Worker(made, 2, 2)

    def fail() -> Any:
        raise kind("a text of a request")

    worker.engine.step = fail  # type: ignore[method-assign]
    served = Served(made, Chat(made), worker, "tiny")
    listener = listen("127.0.0.1", 0)
    caught: list[Exception] = []

    def work() -> None:
        try:
            server.serve(served, listener)
        except WorkError as error:
            caught.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until(lambda: reachable(listener.getsockname()[1]))
    client = Running("", listener.getsockname()[1], served, None, thread)  # type: ignore[arg-type]
    answer = client.ask("/v1/completions", {"prompt": "a"})
    assert answer.status == 503 and json.loads(answer.body)["error"]["code"] == "server_stopping"
    thread.join(60)
    listener.close()
    assert re.fullmatch(rf"generation failed: {kind.__name__} at .*test_server.py:\d+", str(caught[0]))
    assert worker.metrics.accepted == sum(worker.metrics.ended.values()) == 1
