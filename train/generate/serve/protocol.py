"""What all endpoints share of HTTP: refusals in OpenAI's form, bodies with limits, streams, clients that leave, who may ask."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from corpusmill.common.errors import UserError, place_of
from corpusmill.schemas.serving import read_body
from corpusmill.train.log.sinks import log_line

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from corpusmill.train.generate.serve.metrics import Metrics

BODY_BYTES = 4 * 2**20  # of a request, at most
NOSNIFF = (b"x-content-type-options", b"nosniff")
BODY_SECONDS = 30.0  # in which a body has to come


class Refused(Exception):
    """An answer that is an error: status and message, and the parameter that it is about."""

    def __init__(
        self, status: int, message: str, parameter: str | None = None, code: str | None = None, **headers: str
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.parameter, self.code = status, message, parameter, code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def body(self) -> dict[str, Any]:
        kind = (
            "invalid_request_error"
            if self.status < 429
            else "rate_limit_error"
            if self.status == 429
            else "server_error"
        )
        return {"error": {"message": self.message, "type": kind, "param": self.parameter, "code": self.code}}

    def response(self) -> Response:
        return JSONResponse(self.body(), self.status, self.headers)


class Stopping(Refused):
    def __init__(self) -> None:
        super().__init__(503, "the server is being stopped", code="server_stopping")


class Whole(JSONResponse):
    """A JSON answer. `sent` is called when little of it is left to read, or the client has left."""

    def __init__(self, content: Any, sent: Callable[[], None]) -> None:
        super().__init__(content)
        self._sent = sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._write(send))
        except ClientDisconnect:
            pass
        finally:
            self._sent()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})  # waits for the client


class EventStream(Response):
    """Server-sent events as they come. When all are sent, or the client leaves, `leave` is called."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], leave: Callable[[], None]) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events, self._leave = events, leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._write(send))
        except ClientDisconnect:
            pass
        finally:
            self._leave()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(receive: Receive, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`. Raises `ClientDisconnect`, and cancels it, if the client goes first."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read(http: HttpRequest, kind: type[Any]) -> Any:
    """The body of a request. JSON has to be declared: a page of another site can send that only after asking, and is refused."""
    declared = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared != "application/json":
        raise Refused(415, "the body has to be JSON, with the header Content-Type: application/json")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in http.stream():
                data += part
                if len(data) > BODY_BYTES:
                    raise Refused(413, f"the body is longer than {BODY_BYTES} bytes", connection="close")
    except TimeoutError:
        raise Refused(408, f"the body has not come within {BODY_SECONDS:.0f} s", connection="close") from None
    try:
        parsed = orjson.loads(bytes(data))
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"the body is not JSON: {error.msg}") from None
    try:
        return read_body(kind, parsed)
    except UserError as error:
        name = str(error).partition(":")[0]
        raise Refused(400, str(error), name if name in kind.model_fields else None) from None


@dataclass(frozen=True)
class Hosts:
    """Values of the Host header that are answered: `names`, and with `addresses` any IP address."""

    names: frozenset[str]
    addresses: bool = False

    def allow(self, host: str) -> bool:
        if host in self.names:
            return True
        try:
            return self.addresses and bool(ipaddress.ip_address(host.partition("%")[0]))
        except ValueError:
            return False

    def words(self) -> str:
        return ", ".join(sorted(self.names)) + (" or an IP address" if self.addresses else "")


class Outermost:
    """Around the application: checks the Host header and whether the server is `crowded`, counts responses, and logs what goes wrong
    without a word of a request.

    A page of another site whose name leads to this machine sends that name as Host (DNS rebinding).
    """

    def __init__(
        self, app: ASGIApp, hosts: Hosts | None, metrics: Metrics, paths: frozenset[str], crowded: Callable[[], bool]
    ) -> None:  # fmt: skip
        self._app, self._hosts, self._metrics, self._paths = app, hosts, metrics, paths
        self._crowded = crowded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status = 499  # if none is sent

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), NOSNIFF]}
            await send(message)

        try:
            if self._hosts is not None and not self._hosts.allow(host_of(scope)):
                allowed = self._hosts.words()
                await Refused(
                    403, f"the Host header has to be one of {allowed}; --allow-host NAME, when the server is started, adds another",
                    code="host_not_allowed",
                ).response()(scope, receive, counted)  # fmt: skip
            elif self._crowded():
                await Refused(
                    503, "as many connections are open as may; try again", code="overloaded", connection="close", retry_after="1"
                ).response()(scope, receive, counted)  # fmt: skip
            else:
                await self._app(scope, receive, counted)
        except Exception as error:  # its message might hold a part of a prompt
            log_line(f"serve: {place_of(error)}")
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            with self._metrics.lock:
                self._metrics.responses[path, status] += 1


def host_of(scope: Scope) -> str:
    """The name in a request's Host header, without the port; empty if there is none."""
    found = [value for name, value in scope["headers"] if name == b"host"]
    if len(found) != 1:
        return ""
    host: str = found[0].decode("latin-1").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
