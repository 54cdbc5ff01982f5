"""The listening socket, its clients, and the end: uvicorn, with limits for clients on which nothing moves."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from corpusmill.common.errors import UserError, WorkError, place_of
from corpusmill.common.format import quantity
from corpusmill.train.generate.serve.app import Served, make_app
from corpusmill.train.generate.serve.protocol import Hosts
from corpusmill.train.log.sinks import log_line

if TYPE_CHECKING:
    from corpusmill.train.generate.generate import Piece
    from corpusmill.train.generate.serve.worker import Receive

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
STALLED_SECONDS = 30.0  # that a client may take for a request, or to read something of what was written to it
GRACE_SECONDS = 10.0  # that texts may go on after the first signal
CONNECTIONS = 512  # beyond which requests are refused
# That read prompts. A tokenizer keeps up to 10,000 words for each thread that it has worked in, long ones take tens of MiB.
THREADS = 4


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to this place, which does not take connections yet. Raises `UserError` if it cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise UserError(
            f"--host {host}: is no address of this machine; leave it out to serve this machine alone"
        ) from None
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
    except OSError as error:
        found.close()
        if isinstance(error, PermissionError):
            raise UserError(
                f"--port {port}: this user may not serve there; choose one from 1024 on"
            ) from None
        raise UserError(f"--host {host} --port {port}: {error.strerror}; choose another") from None
    return found


def place(listener: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def allowed_hosts(host: str, listener: socket.socket, more: Sequence[str] = ()) -> Hosts:
    """Host headers that a server accepts: names that it has by itself, and `more`; one for other machines also any address, but no
    other name, by which a page of another site could reach it."""
    names = LOOPBACK | {host.lower(), listener.getsockname()[0], *(name.lower() for name in more)}
    if is_loopback(listener):
        return Hosts(names)
    return Hosts(names | {socket.gethostname().lower()}, addresses=True)


class Server(uvicorn.Server):
    """Uvicorn that calls `ready` once it takes connections, ends by a signal with exit code 0, and closes connections on which
    nothing moves."""

    def __init__(self, served: Served, ready: Callable[[], None] = lambda: None) -> None:
        config = uvicorn.Config(
            make_app(served, lambda: len(self.server_state.connections) > CONNECTIONS), http=H11Protocol, ws="none", lifespan="off",
            loop="asyncio", log_config=None, access_log=False, server_header=False, timeout_keep_alive=5,
            timeout_graceful_shutdown=round(GRACE_SECONDS) + 5,
        )  # fmt: skip
        super().__init__(config)
        # What it logs of requests is either metrics here or a line of our own.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self.served, self._ready = served, ready
        self._signals = 0
        self._still: dict[Any, tuple[object, float]] = {}

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # of a test
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._signals += 1
        self.should_exit = True
        if self._signals > 1:
            self.served.worker.cancel_all()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "prompts"))

        def hand_over(pieces: list[tuple[Receive, Piece | None]]) -> None:
            for receive, piece in pieces:
                receive(piece)

        def deliver(pieces: list[tuple[Receive, Piece | None]]) -> None:
            loop.call_soon_threadsafe(hand_over, pieces)

        self.served.worker.start(deliver)
        await super().startup(sockets=sockets)
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self._close_stalled(time.monotonic())
        if self.served.worker.error is not None:
            return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        worker = self.served.worker
        left = worker.open
        if left and worker.error is None:
            log_line(
                f"stopping: {quantity(left, 'text')} may go on for {GRACE_SECONDS:.0f} s; Ctrl-C once more cancels them"
            )
        timer = asyncio.get_running_loop().call_later(GRACE_SECONDS, worker.cancel_all)
        await super().shutdown(sockets=sockets)
        timer.cancel()
        await asyncio.to_thread(worker.stop)

    def _close_stalled(self, now: float) -> None:
        """End the connections whose client has not finished a request, or has read nothing, for a time. One that waits for tokens
        is left in peace."""
        found: dict[Any, tuple[object, float]] = {}
        for connection in list[Any](self.server_state.connections):
            unread = connection.transport.get_write_buffer_size()
            if unread:
                state: object = unread
            elif connection.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                state = connection.cycle  # of its last request: one that asks again and again is never still
            else:
                continue
            known, since = self._still.get(connection, (None, now))
            since = since if known == state else now
            if now - since > STALLED_SECONDS:
                connection.transport.abort()
            else:
                found[connection] = (state, since)
        self._still = found


def serve(served: Served, listener: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
    """Answer requests until a signal comes; `ready` is called when connections are taken. Raises `WorkError` if generation
    fails."""
    worker = served.worker
    server = Server(served, ready)
    try:
        server.run(sockets=[listener])
    finally:
        worker.stop()
    if worker.error is not None:
        raise WorkError(f"generation failed: {place_of(worker.error)}")  # its message might hold a text
    metrics = worker.metrics
    ended = ", ".join(f"{count:,} {reason}" for reason, count in sorted(metrics.ended.items()))
    log_line(
        f"stopped: {quantity(metrics.accepted, 'text')}{f' ({ended})' if ended else ''}, "
        f"{quantity(metrics.generated_tokens, 'token')} generated"
    )
