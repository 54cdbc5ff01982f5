"""The endpoints: OpenAI's completions and chat completions, models, health, metrics, and the page. Built on Starlette.

Nothing of a request's body is logged or kept. Every refusal has OpenAI's form of an error, with one sentence.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from corpusmill.common.errors import UserError
from corpusmill.common.yaml import printable
from corpusmill.schemas.serving import SHOWN, ChatCompletion, Completion, Options
from corpusmill.train.generate.request import Request
from corpusmill.train.generate.serve.answers import Answer, ChatAnswer, CompletionAnswer, Tokens
from corpusmill.train.generate.serve.page import render
from corpusmill.train.generate.serve.protocol import (
    EventStream,
    Hosts,
    Outermost,
    Refused,
    Stopping,
    Whole,
    read,
    until_gone,
)
from corpusmill.train.generate.serve.worker import Failed, Full, Worker

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from corpusmill.train.generate.chat import Chat
    from corpusmill.train.generate.constrain import Constraints
    from corpusmill.train.generate.generate import Opened, Piece

QUIET_SECONDS = 10.0  # after which a stream without a token gets a comment, so that nobody takes it for dead


class Arrivals:
    """Pieces of the texts of one HTTP request on their way to its client. In the event loop alone.

    They wait here for a client that reads slowly: never more than its texts, which the context bounds, and which take their
    places until then.
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
        `Refused` if one has failed, and `Stopping` if they will not end."""
        while self._left:
            try:
                async with asyncio.timeout(QUIET_SECONDS):  # `wait_for` loses cancellations (Python 3.11)
                    await self._new.wait()
            except TimeoutError:
                yield []
                continue
            self._new.clear()
            found: list[Piece] = []
            while self._pieces:
                piece = self._pieces.popleft()
                if piece is None or piece.end == "cancelled":
                    raise Stopping
                if piece.end == "failed":
                    raise _failed(piece.request)
                self._left -= piece.end is not None
                found.append(piece)
            yield found


class Served:
    """A model and its endpoints. `name`: of the model, for clients; `adapters`: names of those beside it, in their order; `hosts`: values of the Host header that are accepted (None:
    all); `constraints`: how texts are constrained, or why they are not."""

    def __init__(
        self, opened: Opened, chat: Chat, worker: Worker, name: str, *, hosts: Hosts | None = None,
        constraints: Constraints | str = "is not supported here", adapters: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.opened, self.chat, self.worker, self.name = opened, chat, worker, name
        self.numbers = {name: 0} | {one: number for number, one in enumerate(adapters, 1)}
        self.hosts, self.constraints = hosts, constraints
        self.tokens = Tokens(opened.tokenizer)
        self.page, self.policy = render(name, opened.step, opened.runner.context, not chat.plain)

    # What can be asked for

    async def home(self, _: HttpRequest) -> Response:
        return HTMLResponse(self.page, headers={"content-security-policy": self.policy})

    async def health(self, _: HttpRequest) -> Response:
        if self.worker.error is not None:
            raise Refused(503, "generation has failed; the server's log says why", code="failed")
        return JSONResponse({"status": "ok"})

    async def metrics(self, _: HttpRequest) -> Response:
        return PlainTextResponse(self.worker.metrics.render(), media_type="text/plain; version=0.0.4")

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name, "object": "model", "created": 0, "owned_by": "corpusmill",
            "step": self.opened.step, "context": self.opened.runner.context,
            **({"parent": self.name} if name != self.name else {}),
        }  # fmt: skip

    async def models(self, _: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._model(name) for name in self.numbers]})

    async def model(self, request: HttpRequest) -> Response:
        return JSONResponse(self._model(self._named(request.path_params["name"])))

    async def completions(self, http: HttpRequest) -> Response:
        body = await read(http, Completion)
        model = self._named(body.model)
        most = 16 if body.max_tokens is None else body.max_tokens
        if not most and not body.echo:
            raise Refused(400, "max_tokens: 0 gives nothing without echo", "max_tokens")
        self._check_count(len(body.prompt) * body.n)
        prompts = await asyncio.to_thread(self._prompts, body)
        requests, seed = await self._requests(body, prompts, most)
        wanted = body.logprobs is not None
        for request in requests:
            request.likeliest = body.logprobs
            request.scored = [] if body.echo and wanted else None
        echo = await asyncio.to_thread(self._echo, body) if body.echo else None
        answer = CompletionAnswer(
            model, requests, len(prompts), seed, self.tokens, logprobs=wanted, echo=echo, nothing=not most
        )
        return await self._answer(http, body, answer)

    async def chat_completions(self, http: HttpRequest) -> Response:
        body = await read(http, ChatCompletion)
        model = self._named(body.model)
        self._check_count(body.n)
        try:
            prompt = await asyncio.to_thread(self.chat.prompt, body.messages)
        except UserError as error:
            raise Refused(400, str(error), "messages") from None
        most = body.max_completion_tokens or body.max_tokens
        if most == 0:
            raise Refused(400, "max_tokens: 0 gives nothing", "max_tokens")
        if most is None:  # what the context has left
            most = max(self.opened.runner.context - len(prompt) + 1, 1)
        requests, seed = await self._requests(body, [prompt], most, self.chat.stop)
        for request in requests:
            request.ends |= self.chat.ends
            request.likeliest = body.top_logprobs if body.logprobs else None
        answer = ChatAnswer(model, requests, seed, self.tokens, logprobs=body.logprobs, strip=self.chat.blank)
        return await self._answer(http, body, answer)

    # How it is answered

    def _named(self, name: str | None) -> str:
        """The model, or the adapter beside it, that a request names; without a name the model."""
        if name is not None and name not in self.numbers:
            there = ", ".join(f"'{one}'" for one in self.numbers)
            raise Refused(
                404,
                f"model: '{printable(name[:SHOWN])}' is not here; this server has {there}",
                "model",
                "model_not_found",
            )
        return self.name if name is None else name

    def _check_count(self, count: int) -> None:
        most = self.worker.most
        if count > most:
            raise Refused(
                400, f"asks for {count} texts, and this server takes {most} at a time; ask for fewer", "n"
            )

    def _prompts(self, body: Completion) -> list[list[int]]:
        vocabulary, found = self.opened.runner.vocab_size, []
        for prompt in body.prompt:
            if isinstance(prompt, str):
                found.append(self.opened.prompt(prompt))
            elif max(prompt) >= vocabulary:
                raise Refused(
                    400, f"prompt: has the token {max(prompt)}, and the vocabulary {vocabulary}", "prompt"
                )
            else:
                found.append(list(prompt))
        return found

    def _echo(self, body: Completion) -> list[tuple[str, int]]:
        """For each text its prompt, and the number of tokens before it."""
        decode = self.opened.tokenizer.decode
        found = [
            (prompt, 1) if isinstance(prompt, str) else (decode(prompt, skip_special_tokens=False), 0)
            for prompt in body.prompt
        ]
        return [one for one in found for _ in range(body.n)]

    async def _requests(
        self, body: Options, prompts: Sequence[list[int]], most: int, stop: tuple[str, ...] = ()
    ) -> tuple[list[Request], int]:
        """A request for each text, and the seed of all: without one given, a random one."""
        for prompt in prompts:
            try:
                self.worker.engine.check(prompt)
            except ValueError as error:
                raise Refused(400, str(error), "prompt", "context_length_exceeded") from None
        vocabulary = self.opened.runner.vocab_size
        if body.logit_bias and max(body.logit_bias) >= vocabulary:
            raise Refused(
                400, f"logit_bias: has a token that the vocabulary of {vocabulary} has not", "logit_bias"
            )
        seed = secrets.randbits(48) if body.seed is None else body.seed % 2**63
        sampling, ends = body.sampling(max(most, 1), seed, stop), self.opened.ends(body.stop)
        adapter = self.numbers[self._named(body.model)]
        found = [
            # Of one prompt: the same list, which is read once.
            Request(prompt, sampling, number, ends=ends, adapter=adapter)
            for number, prompt in enumerate(one for one in prompts for _ in range(body.n))
        ]
        if body.guided_regex is not None or body.json_schema is not None:
            await asyncio.to_thread(self._constrain, body, found)
        return found, seed

    def _constrain(self, body: Options, requests: Sequence[Request]) -> None:
        names = ("response_format", "guided_json", "guided_regex")
        name = next(name for name in names if getattr(body, name) is not None)
        if isinstance(self.constraints, str):
            raise Refused(400, f"{name}: {self.constraints}", name)
        try:
            if body.guided_regex is not None:
                constraint = self.constraints.regex(body.guided_regex)
            else:
                constraint = self.constraints.json_schema(body.json_schema or {})
        except UserError as error:
            raise Refused(400, f"{name}: {error}", name) from None
        for request in requests:
            request.allowed = constraint.start()
            request.ends |= constraint.ends  # of a completion, too: those of the chat template

    async def _answer(self, http: HttpRequest, body: Options, answer: Answer) -> Response:
        """Queue the texts of an answer, and give it as it comes or as a whole."""
        arrivals = Arrivals(answer.requests)
        try:
            places = self.worker.submit(answer.requests, arrivals.receive)
        except Full:
            raise Refused(
                429, "as many texts wait as may; try again", None, "queue_full", retry_after=str(self._wait())
            ) from None
        except Failed:
            raise Stopping from None

        def leave() -> None:
            for request in answer.requests:  # no harm to those that have ended
                request.cancelled = True
            self.worker.sent(places)

        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            return EventStream(_events(arrivals, answer, usage), leave)
        try:
            return Whole(answer.whole(await until_gone(http.receive, _all(arrivals))), leave)
        except BaseException:
            leave()
            raise

    def _wait(self) -> int:
        """Seconds in which a place may be expected: what a text takes, over the rows."""
        metrics = self.worker.metrics
        with metrics.lock:
            ended = sum(metrics.text.counts)
            mean = metrics.text.sum / ended if ended else 1.0
        return max(1, min(60, round(mean / metrics.rows)))


async def _all(arrivals: Arrivals) -> list[Piece]:
    return [piece async for pieces in arrivals.pieces() for piece in pieces]


async def _events(arrivals: Arrivals, answer: Answer, usage: bool) -> AsyncIterator[str]:
    """The lines of a stream."""
    try:
        async for pieces in arrivals.pieces():
            if not pieces:
                yield ": waiting\n\n"
            for piece in pieces:
                chunk = answer.chunk(piece)
                if chunk is not None:
                    yield _event({**chunk, "usage": None} if usage else chunk)
        if usage:
            yield _event(answer.last_chunk())
        yield "data: [DONE]\n\n"
    except Refused as refused:
        yield _event(refused.body())


def _failed(request: Request) -> Refused:
    if isinstance(request.failure, UserError):
        return Refused(400, str(request.failure))
    return Refused(500, "the text could not be generated; the server's log says why", code="failed")


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def make_app(served: Served, crowded: Callable[[], bool]) -> ASGIApp:
    """The ASGI application. `crowded`: whether there are so many connections that requests are refused."""
    routes = [
        Route("/", served.home),
        Route("/health", served.health),
        Route("/metrics", served.metrics),
        Route("/v1/models", served.models),
        Route("/v1/models/{name:path}", served.model),
        Route("/v1/completions", served.completions, methods=["POST"]),
        Route("/v1/chat/completions", served.chat_completions, methods=["POST"]),
    ]

    async def refused(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return error.response()

    async def http_error(request: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = printable(request.url.path[:SHOWN])
        words = {
            404: f"there is nothing at {path}",
            405: f"{path} takes {(error.headers or {}).get('Allow', 'another method')}",
        }
        return Refused(
            error.status_code, words.get(error.status_code, error.detail), **(error.headers or {})
        ).response()

    async def left(_: HttpRequest, error: Exception) -> Response:
        return Response(status_code=499)  # nobody reads it

    async def crashed(_: HttpRequest, error: Exception) -> Response:
        return Refused(500, "the server has made a mistake; its log says where").response()

    handlers: dict[Any, Any] = {
        Refused: refused,
        HTTPException: http_error,
        ClientDisconnect: left,
        Exception: crashed,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    paths = frozenset(route.path for route in routes)
    return Outermost(app, served.hosts, served.worker.metrics, paths, crowded)
