"""Answers on their way to a client: refusals, pieces of text as they come, server-sent events, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from corpusmill.train.generate.request import Request

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from corpusmill.train.generate.generate import Piece
    from corpusmill.train.generate.serve.answers import Answer

QUIET_SECONDS = 10.0  # after which a stream without a token gets a comment, so that nobody takes it for dead


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


class Arrivals:
    """Pieces of the texts of one HTTP request on their way to its client. In the event loop alone.

    They wait here for a client that reads slowly: never more than its texts, which the context bounds.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self._left = len(requests)
        self._pieces: deque[Piece | None] = deque()
        self._new = asyncio.Event()

    def receive(self, piece: Piece | None) -> None:
        self._pieces.append(piece)
        self._new.set()

    async def pieces(self) -> AsyncIterator[list[Piece]]:
        """All that have come, again and again, until all texts have ended; an empty list now and then while nothing comes. Raises
        `Stopping` if they will not end."""
        while self._left:
            try:
                await asyncio.wait_for(self._new.wait(), QUIET_SECONDS)
            except TimeoutError:
                yield []
                continue
            self._new.clear()
            found: list[Piece] = []
            while self._pieces:
                piece = self._pieces.popleft()
                if piece is None or piece.end == "cancelled":
                    raise Stopping
                self._left -= piece.end is not None
                found.append(piece)
            yield found


class EventStream(Response):
    """Server-sent events as they come. When the client leaves, `leave` is called."""

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


async def everything(arrivals: Arrivals) -> list[Piece]:
    return [piece async for pieces in arrivals.pieces() for piece in pieces]


async def events(arrivals: Arrivals, answer: Answer, usage: bool) -> AsyncIterator[str]:
    """The lines of a stream."""
    try:
        async for pieces in arrivals.pieces():
            if not pieces:
                yield ": waiting\n\n"
            for piece in pieces:
                chunk = answer.chunk(piece)
                if chunk is not None:
                    yield _event(chunk)
        if usage:
            yield _event(answer.last_chunk())
        yield "data: [DONE]\n\n"
    except Stopping as stopping:
        yield _event(stopping.body())


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
