"""The clients of `serve_soak`: they stream, leave, break off, read slowly and send rubbish."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

PATHS = ("/v1/completions", "/v1/chat/completions")
JSON = {"Content-Type": "application/json"}
WORDS = 12_000  # more than the 10,000 that a tokenizer keeps for each thread


class Clients:
    """What they do, each a method; `seen` counts it with its result, `answered` the complete responses by path and status."""

    BROKEN = ("half body", "half head", "rubbish")  # no whole request

    def __init__(self, port: int) -> None:
        self.port = port
        self.lock = threading.Lock()
        self.seen: Counter[tuple[str, str]] = Counter()
        self.answered: Counter[tuple[str, int]] = Counter()

    def actions(self) -> list[Callable[[random.Random], str]]:
        return [
            self.whole, self.whole, self.stream, self.stream, self.stream_and_leave, self.stream_and_leave, self.leave_unread, self.half_body,
            self.half_head, self.rubbish, self.wrong_body, self.slow_reader, self.look,
        ]  # fmt: skip

    def work(self, seed: int, until: float) -> None:
        chance = random.Random(seed)
        actions = self.actions()
        while time.monotonic() < until:
            action = chance.choice(actions)
            try:
                result = action(chance)
            except (OSError, http.client.HTTPException) as error:
                result = type(error).__name__
            with self.lock:
                self.seen[action.__name__.replace("_", " "), result] += 1
            if result == "429":
                time.sleep(0.05 * chance.random())

    @property
    def requests(self) -> int:
        """Visits that have ended, those with a broken request too."""
        with self.lock:
            return sum(self.seen.values())

    @property
    def broken(self) -> int:
        with self.lock:
            return sum(count for (action, _), count in self.seen.items() if action in self.BROKEN)

    def fill_word_caches(self) -> None:
        """Let each of the server's threads that read prompts see as many words as its tokenizer keeps: what that takes is no leak."""
        words = " ".join(map(str, range(10**5, 10**5 + WORDS)))
        body = json.dumps({"prompt": words}).encode()
        with ThreadPoolExecutor(8) as pool:  # at once, so that every thread gets some of them
            statuses = {status for status, _ in pool.map(lambda _: self.ask(PATHS[0], body), range(32))}
        assert statuses == {400}, statuses  # longer than the context, which is seen when it has been read

    def fresh(self) -> str:
        """The text of a request that always asks for the same."""
        status, body = self.ask(PATHS[0], json.dumps({"prompt": "ab", "max_tokens": 20, "seed": 1}).encode())
        return str(json.loads(body)["choices"][0]["text"]) if status == 200 else f"status {status}"

    def whole(self, chance: random.Random) -> str:
        status, _ = self.ask(*self._request(chance, stream=False))
        return str(status)

    def stream(self, chance: random.Random) -> str:
        status, body = self.ask(*self._request(chance, stream=True))
        return "200, complete" if status == 200 and body.endswith(b"data: [DONE]\n\n") else str(status)

    def stream_and_leave(self, chance: random.Random) -> str:
        client = self._send(chance, stream=True)
        for _ in range(chance.randrange(6)):
            if not client.recv(300):
                break
        self._close(client, chance)
        return "left"

    def leave_unread(self, chance: random.Random) -> str:
        client = self._send(chance, stream=chance.random() < 0.5)
        time.sleep(0.05 * chance.random())
        self._close(client, chance)
        return "left"

    def half_body(self, chance: random.Random) -> str:
        client = self._send(chance, stream=True, cut=True)
        time.sleep(0.1 * chance.random())
        self._close(client, chance)
        return "left"

    def half_head(self, chance: random.Random) -> str:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: local"[: chance.randrange(1, 40)])
        time.sleep(0.1 * chance.random())
        self._close(client, chance)
        return "left"

    def rubbish(self, chance: random.Random) -> str:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        client.sendall(chance.randbytes(chance.randrange(1, 2000)) + b"\r\n\r\n")
        with suppress(ConnectionResetError):
            while client.recv(65536):
                pass
        client.close()
        return "closed"

    def wrong_body(self, chance: random.Random) -> str:
        body = chance.choice(
            [b"", b"{", b'"a"', b'{"prompt": 3}', b'{"prompt": "a", "tools": [1]}', chance.randbytes(50), b"[" * 900,
             b'{"prompt": "a", "n": 200}', b'{"prompt": "' + b"a" * 2000 + b'"}']
        )  # fmt: skip
        status, _ = self.ask("/v1/completions", body)
        return str(status)

    def slow_reader(self, chance: random.Random) -> str:
        client = self._send(chance, stream=True)
        for _ in range(chance.randrange(20)):
            client.recv(20)
            time.sleep(0.02)
        self._close(client, chance)
        return "left"

    def look(self, chance: random.Random) -> str:
        status, _ = self.ask(chance.choice(["/", "/health", "/metrics", "/v1/models", "/nowhere"]), None)
        return str(status)

    def _request(self, chance: random.Random, stream: bool) -> tuple[str, bytes]:
        path = chance.choice(PATHS)
        body: dict[str, object] = {
            "max_tokens": chance.choice([1, 8, 60, 300]),
            "stream": stream,
            "temperature": chance.choice([0, 1.0]),
        }
        text = "".join(chance.choice("abc ü日\n") for _ in range(chance.randrange(60)))
        if path == PATHS[0]:
            body |= {
                "prompt": text,
                "n": chance.choice([1, 1, 1, 3]),
                "stop": chance.choice([[], ["a"], ["zz"]]),
            }
            body |= {"logprobs": 3} if chance.random() < 0.2 else {}
        else:
            body |= {"messages": [{"role": "user", "content": text}]}
        return path, json.dumps(body).encode()

    def ask(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET" if body is None else "POST", path, body, {} if body is None else JSON)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        with self.lock:
            self.answered[path, response.status] += 1
        return response.status, data

    def _send(self, chance: random.Random, stream: bool, cut: bool = False) -> socket.socket:
        path, body = self._request(chance, stream)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        client = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        client.sendall(head.encode() + (body[: chance.randrange(len(body))] if cut else body))
        return client

    @staticmethod
    def _close(client: socket.socket, chance: random.Random) -> None:
        if chance.random() < 0.5:  # by a reset
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()
