"""`corpusmill serve` under clients that stream, leave, break off, read slowly and send rubbish: memory, what is stuck, what adds up.

`python -m bench serve_soak --minutes 30 [--clients 24] [--seed 0]`. The run fails unless the server's memory stays within `GROWTH`
after its first quarter, every text ends, rows, connections and files are free again, the counters agree with each other and
with what the clients saw, and the server ends by SIGTERM with exit code 0 and without a line about a mistake of its own.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil

GROWTH = 16 * 2**20  # bytes of memory, from the second quarter's median to the last one's
PATHS = ("/v1/completions", "/v1/chat/completions")
JSON = {"Content-Type": "application/json"}


class Clients:
    """What they do, each a method; `seen` counts it with its result, `answered` the complete responses by path and status."""

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

    def whole(self, chance: random.Random) -> str:
        status, _ = self._ask(*self._request(chance, stream=False))
        return str(status)

    def stream(self, chance: random.Random) -> str:
        status, body = self._ask(*self._request(chance, stream=True))
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
        status, _ = self._ask("/v1/completions", body)
        return str(status)

    def slow_reader(self, chance: random.Random) -> str:
        client = self._send(chance, stream=True)
        for _ in range(chance.randrange(20)):
            client.recv(20)
            time.sleep(0.02)
        self._close(client, chance)
        return "left"

    def look(self, chance: random.Random) -> str:
        status, _ = self._ask(chance.choice(["/", "/health", "/metrics", "/v1/models", "/nowhere"]), None)
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

    def _ask(self, path: str, body: bytes | None) -> tuple[int, bytes]:
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


class Figures:
    """The server's metrics at one time."""

    def __init__(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/metrics")
        self.lines = connection.getresponse().read().decode().splitlines()
        connection.close()

    def of(self, name: str, labels: str = "") -> float:
        """The sum of a metric over its labels, or of those alone that have `labels`."""
        wanted = re.compile(rf"corpusmill_{name}(\{{.*\}})? ")
        return sum(float(one.rpartition(" ")[2]) for one in self.lines if wanted.match(one) and labels in one)


def wait_for(true: Callable[[], bool], seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while not true():
        if time.monotonic() > limit:
            return False
        time.sleep(0.2)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench serve_soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    command = [sys.executable, "-m", "bench._soak_server"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    try:
        problems = soak(server, options.minutes * 60, options.clients, options.seed)
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()
    if problems:
        print("\n" + "\n".join(f"**{problem}**" for problem in problems))
        sys.exit(1)


def soak(server: subprocess.Popen[str], seconds: float, count: int, seed: int) -> list[str]:
    """Trouble the server and print what happened; what is wrong with it."""
    assert server.stdout is not None
    port = int(server.stdout.readline().rpartition(":")[2])
    process, clients = psutil.Process(server.pid), Clients(port)
    wait_for(lambda: _answers(port), 60)
    files = process.num_fds()
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=clients.work, args=(seed * 1000 + n, until)) for n in range(count)]
    for thread in threads:
        thread.start()
    memory, most = list[int](), 0.0
    while time.monotonic() < until and server.poll() is None:
        memory.append(process.memory_info().rss)
        time.sleep(min(1.0, seconds / 60))
        if len(memory) % 5 == 0:
            most = max(most, Figures(port).of("texts_active") + Figures(port).of("texts_waiting"))
    for thread in threads:
        thread.join(180)
    problems = (
        [f"{sum(thread.is_alive() for thread in threads)} clients hang"]
        if any(t.is_alive() for t in threads)
        else []
    )
    if server.poll() is not None:
        return [*problems, f"the server ended with exit code {server.poll()}"]
    if not wait_for(lambda: Figures(port).of("texts_active") + Figures(port).of("texts_waiting") == 0, 60):
        problems.append("texts go on for which nobody waits")
    if not wait_for(lambda: process.num_fds() <= files, 60):
        problems.append(f"{process.num_fds() - files} files are open that were not")
    found = Figures(port)
    accepted, ended = found.of("texts_accepted_total"), found.of("texts_ended_total")
    if accepted != ended or ended != found.of("text_seconds_count"):
        problems.append(f"{accepted:.0f} texts were accepted and {ended:.0f} ended")
    for (path, status), number in clients.answered.items():
        if path in PATHS and found.of("http_responses_total", f'path="{path}",status="{status}"') < number:
            problems.append(f"{path}: clients saw {number} answers {status}, the server counts fewer")
    if clients.answered[PATHS[0], 500] or found.of("http_responses_total", 'status="500"'):
        problems.append("the server made mistakes")
    quarter = max(len(memory) // 4, 1)
    early, late = median(memory[quarter : 2 * quarter] or memory), median(memory[-quarter:])
    if late - early > GROWTH:
        problems.append(f"memory grew by {(late - early) / 2**20:.0f} MiB")
    server.send_signal(signal.SIGTERM)
    _, errors = server.communicate(timeout=60)
    if server.returncode or "Traceback" in errors or " at /" in errors:
        problems.append(f"the server ended with exit code {server.returncode}: {errors.strip()[-300:]}")
    _report(clients, found, seconds, count, memory, early, late, most, errors)
    return problems


def _answers(port: int) -> bool:
    with suppress(OSError):
        return bool(Figures(port).lines)
    return False


def _report(
    clients: Clients, found: Figures, seconds: float, count: int, memory: list[int], early: float, late: float, most: float,
    errors: str,
) -> None:  # fmt: skip
    print(f"{count} clients for {seconds / 60:.1f} minutes; {sum(clients.seen.values()):,} visits.\n")
    print("| what a client does | results |\n|---|---|")
    for name in dict.fromkeys(action.__name__.replace("_", " ") for action in clients.actions()):
        results = sorted((result, n) for (action, result), n in clients.seen.items() if action == name)
        print(f"| {name} | {', '.join(f'{result}: {n:,}' for result, n in results) or '–'} |")
    ends = {
        reason: found.of("texts_ended_total", f'"{reason}"')
        for reason in ("stop", "length", "context", "cancelled", "failed")
    }
    print(f"\n- Texts: {found.of('texts_accepted_total'):,.0f} accepted; ended: "
          + ", ".join(f"{n:,.0f} {reason}" for reason, n in ends.items() if n)
          + f"; {found.of('generated_tokens_total'):,.0f} tokens; at most {most:.0f} at a time seen.")  # fmt: skip
    waited = found.of("time_to_first_token_seconds_sum") / max(
        found.of("time_to_first_token_seconds_count"), 1
    )
    print(f"- Mean time to the first token, with the wait in the queue: {waited * 1e3:.0f} ms.")
    print(
        f"- Memory: {memory[0] / 2**20:.0f} MiB at first, median {early / 2**20:.1f} MiB in the second quarter, {late / 2**20:.1f} MiB in the"
        f" last: {(late - early) / 2**20 / (seconds / 2) * 3600:+.1f} MiB an hour."
    )
    print(f"- The server's last line: {(errors.strip().splitlines() or ['none'])[-1]}")


if __name__ == "__main__":
    main()
