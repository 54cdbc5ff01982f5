"""An HTTP proxy before the S3-compatible server that breaks answers as a policy says.

It passes requests on as they were signed (the Host header included), so it stands between any client and the store:
set `AWS_ENDPOINT_URL` to its `url`.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """What a client asks: `bytes` is half open, None without a Range header; `times`: how often it was asked before."""

    method: str
    path: str
    bytes: tuple[int, int] | None
    if_match: str
    times: int


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


Fault = Callable[["Exchange"], None]
Policy = Callable[[Request], Fault | None]


class Exchange(BaseHTTPRequestHandler):
    """One connection of a client; a fault answers its request by these methods."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in small packets, a header each, waits 40 ms for the client's acknowledgement
    server: Server
    asks: Request
    upstream: http.client.HTTPConnection | None = None

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        span = self.headers.get("Range", "")
        first, _, last = span.removeprefix("bytes=").partition("-")
        self.asks = self.server.note(
            self.command, self.path, (int(first), int(last) + 1) if span else None, self.headers.get("If-Match", "")
        )  # fmt: skip
        self.body = body
        fault = self.server.policy(self.asks)
        try:
            if fault:
                self.server.faults += 1
                fault(self)
            else:
                self.send(self.ask())
        except OSError:  # the client went away
            self.close_connection = True

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def ask(self) -> Answer:
        """The store's answer."""
        if self.upstream is None:
            self.upstream = http.client.HTTPConnection(*self.server.store, timeout=60)
        self.upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            self.upstream.putheader(name, value)
        self.upstream.endheaders(self.body)
        answer = self.upstream.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())

    def send(self, answer: Answer, cut: int | None = None) -> None:
        """Answer; with `cut`, only so many bytes of the body, though the header promises all."""
        self.wfile.write(f"HTTP/1.1 {answer.status} -\r\n".encode())
        length = None if self.command != "HEAD" else answer_header(answer, "Content-Length")
        for name, value in answer.headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.wfile.write(f"{name}: {value}\r\n".encode())
        self.wfile.write(f"Content-Length: {length or len(answer.body)}\r\n\r\n".encode())
        self.wfile.write(answer.body[:cut])
        if cut is not None:
            self.end()

    def end(self, reset: bool = False) -> None:
        """End the connection; with `reset`, by an RST."""
        self.wfile.flush()
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_WR)
        self.close_connection = True

    def wait(self, seconds: float) -> None:
        self.server.over.wait(seconds)

    def finish(self) -> None:
        if self.upstream is not None:
            self.upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        pass


def answer_header(answer: Answer, name: str) -> str | None:
    return next((value for key, value in answer.headers if key.lower() == name.lower()), None)


class Server(ThreadingHTTPServer):
    """The proxy: `asked` counts requests, `faults` those that were broken; `policy` may be changed at any time."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, store: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.store = store
        self.policy: Policy = lambda request: None
        self.asked: Counter[tuple[str, str, tuple[int, int] | None]] = Counter()
        self.conditions: Counter[str] = Counter()
        self.faults = 0
        self.over = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def note(self, method: str, path: str, span: tuple[int, int] | None, if_match: str) -> Request:
        with self._lock:
            times = self.asked[method, path, span]
            self.asked[method, path, span] += 1
            self.conditions[if_match] += 1
        return Request(method, path, span, if_match, times)

    def tar_gets(self) -> int:
        """GETs of tars so far."""
        return sum(
            count
            for (method, path, _), count in self.asked.items()
            if method == "GET" and path.endswith(".tar")
        )

    def handle_error(self, *_: object) -> None:
        pass  # connections that a fault or a client ended


@contextlib.contextmanager
def proxy(endpoint: str) -> Iterator[Server]:
    """A proxy before the store at `endpoint` (http://host:port)."""
    host, _, port = endpoint.removeprefix("http://").partition(":")
    server = Server((host, int(port)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


# Faults


def refused(status: int) -> Fault:
    """An answer with this status, without asking the store: 503, 500, 429, 403, 404."""
    return lambda exchange: exchange.send(Answer(status, [], b""))


def slow(seconds: float) -> Fault:
    """The right answer, after a while."""

    def fault(exchange: Exchange) -> None:
        exchange.wait(seconds)
        exchange.send(exchange.ask())

    return fault


def stalled(exchange: Exchange) -> None:
    """Half of the body, then nothing more."""
    answer = exchange.ask()
    exchange.wfile.write(
        f"HTTP/1.1 206 -\r\nContent-Length: {len(answer.body)}\r\n"
        f"Content-Range: {answer_header(answer, 'Content-Range')}\r\nETag: {answer_header(answer, 'ETag')}\r\n\r\n".encode()
    )
    exchange.wfile.write(answer.body[: len(answer.body) // 2])
    exchange.wfile.flush()
    exchange.wait(60)
    exchange.end()


def reset(exchange: Exchange) -> None:
    """The connection is reset before any answer."""
    exchange.end(reset=True)


def lost(exchange: Exchange) -> None:
    """The store does what it was asked, and the connection is reset before its answer."""
    exchange.ask()
    exchange.end(reset=True)


def cut(exchange: Exchange) -> None:
    """Half of the promised body, then the connection ends."""
    answer = exchange.ask()
    exchange.send(answer, len(answer.body) // 2)


def changed(change: Callable[[bytes], bytes]) -> Fault:
    """The answer with another body, of whose length the header tells no lie."""

    def fault(exchange: Exchange) -> None:
        answer = exchange.ask()
        exchange.send(answer._replace(body=change(answer.body)) if answer.status == 206 else answer)

    return fault


def flip(body: bytes) -> bytes:
    """One bit of the tokens: they come first, and take at least a quarter."""
    place = zlib.crc32(body) % (len(body) // 4)
    return body[:place] + bytes([body[place] ^ 4]) + body[place + 1 :]


flipped = changed(flip)
short = changed(lambda body: body[: len(body) // 2])
empty = changed(lambda body: b"")


def truncated(exchange: Exchange) -> None:
    """As if the object ended in the midst of the range."""
    answer, (start, end) = exchange.ask(), exchange.asks.bytes or (0, 0)
    middle = (start + end) // 2
    headers = [(name, value) for name, value in answer.headers if name.lower() != "content-range"]
    headers.append(("Content-Range", f"bytes {start}-{middle - 1}/{middle}"))
    exchange.send(Answer(206, headers, answer.body[: middle - start]))


def swapped(objects: dict[str, bytes]) -> Fault:
    """Bytes of the same length from elsewhere in the same object; `objects`: the end of a path -> its bytes."""

    def fault(exchange: Exchange) -> None:
        answer, (start, end) = exchange.ask(), exchange.asks.bytes or (0, 0)
        whole = next(data for name, data in objects.items() if exchange.asks.path.endswith(name))
        other = (start + len(whole) // 3) % (len(whole) - (end - start))
        exchange.send(answer._replace(body=whole[other : other + end - start]))

    return fault


# Policies


def some(share: float, *faults: Fault, times: int = 1, seed: int = 0) -> Policy:
    """This share of the tars' ranges meets a fault (one of these) the first `times` that it is asked for."""

    def policy(request: Request) -> Fault | None:
        if request.bytes is None or not request.path.endswith(".tar") or request.times >= times:
            return None
        what = f"{request.path.rpartition('/')[2]} {request.bytes} {seed}"
        hit = random.Random(what).random() < share
        return random.Random(f"{what} {request.times}").choice(faults) if hit else None

    return policy


def always(fault: Fault, tar: str = ".tar", start: int | None = None, end: int | None = None) -> Policy:
    """Every range of this tar that overlaps [start, end) meets the fault, for ever."""

    def policy(request: Request) -> Fault | None:
        if request.bytes is None or not request.path.endswith(tar):
            return None
        first, last = request.bytes
        return fault if (end is None or first < end) and (start is None or last > start) else None

    return policy
