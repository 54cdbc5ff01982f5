"""The page for raters: a server on loopback that shows pairs without the models' names, on sides drawn by seed, and keeps each rating
at once.

Other pages of the browser and other hosts' names cannot use it: requests need the Host of this address, the token of its page in a
header, and JSON as content.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.schemas.judging import Choice, Judgement, Side
from corpusmill.train.evaluate.judge.pairs import Pair, Pairs
from corpusmill.train.evaluate.judge.ratings import Ratings, latest
from corpusmill.train.log.dashboard import ASSETS as STYLE

ASSETS = Path(__file__).parent / "assets"
LARGEST = 1 << 16  # bytes of a request
NAME = 64  # characters of a rater's name
LOCAL = "127.0.0.1"


class Refused(Exception):
    """A request that is not answered: status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Session:
    """Who has rated what, and what comes next. Methods may be called from several threads."""

    def __init__(self, pairs: Pairs, ratings: Ratings, seed: int = 0) -> None:
        self.pairs, self.ratings, self.seed = pairs, ratings, seed
        self._by_id = {pair.id: pair for pair in pairs.rows}
        self._lock = threading.Lock()

    def side(self, pair: str, rater: str) -> Side:
        """Whose text stands on the left for this rater: a coin that depends on these and the seed alone."""
        odd = int(checksum(json.dumps([self.seed, pair, rater]).encode())[-1], 16) % 2
        return "b" if odd else "a"

    def show(self, rater: str, pair: str | None = None) -> dict[str, Any]:
        """What the page shows a rater: a pair that is named, or the first one without a rating of theirs; and their progress."""
        with self._lock:
            return self._shown(rater, pair)

    def rate(self, rater: str, pair: str, choice: str, seconds: float) -> dict[str, Any]:
        """Keep a rating (`left`, `right`, `tie` or `both_bad`); what comes next. Raises `Refused` for what was not asked."""
        found = self._by_id.get(pair)
        if found is None:
            raise Refused(404, "no such pair")
        left = self.side(pair, rater)
        right: Side = "a" if left == "b" else "b"
        chosen: dict[str, Choice] = {"left": left, "right": right, "tie": "tie", "both_bad": "both_bad"}
        if choice not in chosen:
            raise Refused(400, "choice must be left, right, tie or both_bad")
        row = Judgement(
            pair=pair, prompt=found.prompt, a=self.pairs.a.name, b=self.pairs.b.name, text_a=found.a, text_b=found.b,
            left=left, choice=chosen[choice], rater=rater, time=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(max(seconds, 0.0), 1), sampling=self.pairs.sampling, weights_a=self.pairs.a.weights,
            weights_b=self.pairs.b.weights,
        )  # fmt: skip
        with self._lock:
            try:
                self.ratings.add(row)
            except WorkError as error:
                raise Refused(500, str(error)) from None
            return self._shown(rater, None)

    def back(self, rater: str, before: str | None) -> dict[str, Any]:
        """The pair that a rater rated before the one that is shown, to be rated again."""
        with self._lock:
            done = self._done(rater)
            at = done.index(before) if before in done else len(done)
            return self._shown(rater, done[at - 1] if at else before)

    def _done(self, rater: str) -> list[str]:
        models = frozenset((one.name, one.weights) for one in (self.pairs.a, self.pairs.b))
        own = (row for row in self.ratings.rows if row.rater == rater and row.models == models)
        return [row.pair for row in latest(own) if row.pair in self._by_id]

    def _shown(self, rater: str, pair: str | None) -> dict[str, Any]:
        done = set(self._done(rater))
        found: Pair | None = self._by_id.get(pair or "")
        if found is None:
            found = next((one for one in self.pairs.rows if one.id not in done), None)
        progress = {"done": len(done), "total": len(self.pairs.rows)}
        if found is None:
            return progress
        texts = (found.a, found.b) if self.side(found.id, rater) == "a" else (found.b, found.a)
        return {**progress, "pair": found.id, "prompt": found.prompt, "left": texts[0], "right": texts[1]}


class Server(ThreadingHTTPServer):
    """On a port of loopback, 0: any that is free. Raises `UserError` for one that is taken."""

    daemon_threads = True

    def __init__(self, session: Session, port: int = 0) -> None:
        self.session, self.token = session, secrets.token_urlsafe(24)
        try:
            super().__init__((LOCAL, port), Handler)
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}; give another one, or 0 for any") from None
        self.hosts = {f"{name}:{self.server_port}" for name in (LOCAL, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://{LOCAL}:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "corpusmill", ""
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds that a silent client is waited for

    def do_GET(self) -> None:
        try:
            self._check_host()
            if self.path != "/":
                raise Refused(404, "not found")
            page, script_hash = rendered(self.server.token)
            policy = (
                f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; script-src 'sha256-{script_hash}';"
                " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            )
            self._answer(200, page.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": policy})
        except Refused as reason:
            self._refuse(reason)

    def do_POST(self) -> None:
        try:
            body = self._body()  # read in any case: a refusal of what was not read may not arrive
            self._check_host()
            self._check_origin()
            request = self._json(body)
            rater = request.get("rater")
            if (
                not isinstance(rater, str)
                or not rater.strip()
                or len(rater) > NAME
                or not rater.isprintable()
            ):
                raise Refused(400, f"rater must be a name of 1 to {NAME} characters")
            self._answer_json(self._act(rater.strip(), request))
        except Refused as reason:
            self._refuse(reason)

    def _act(self, rater: str, request: dict[str, Any]) -> dict[str, Any]:
        session, pair = self.server.session, request.get("pair")
        if pair is not None and not isinstance(pair, str):
            raise Refused(400, "pair must be a text")
        if self.path == "/next":
            return session.show(rater)
        if self.path == "/back":
            return session.back(rater, pair)
        if self.path == "/rate":
            seconds = request.get("seconds", 0.0)
            if not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
                raise Refused(400, "seconds must be a number")
            return session.rate(rater, pair or "", str(request.get("choice")), float(seconds))
        raise Refused(404, "not found")

    def _check_host(self) -> None:
        # A page of another host whose name leads here (DNS rebinding) has that name as Host.
        if self.headers.get("Host") not in self.server.hosts:
            raise Refused(403, "this server answers under its own address alone")

    def _check_origin(self) -> None:
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            raise Refused(403, "requests come from its own page alone")
        if not hmac.compare_digest(self.headers.get("X-Token", "").encode(), self.server.token.encode()):
            raise Refused(403, "the page is of an earlier start: load it again")

    def _body(self) -> bytes:
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise Refused(411, "Content-Length is missing") from None
        if size < 0:
            raise Refused(400, "Content-Length is below 0")
        body = self.rfile.read(min(size, 16 * LARGEST))
        if size > LARGEST:
            raise Refused(413, "too large")
        return body

    def _json(self, body: bytes) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "content must be JSON")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Refused(400, "content must be a JSON object")
        return found

    def _refuse(self, reason: Refused) -> None:
        self.close_connection = True
        self._answer_json({"error": str(reason)}, reason.status)

    def _answer_json(self, value: Any, status: int = 200) -> None:
        self._answer(status, json.dumps(value).encode(), "application/json", {})

    def _answer(self, status: int, body: bytes, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", **more,
        }  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: raters' names and texts belong in no log."""


def rendered(token: str) -> tuple[str, str]:
    """The page, and the hash of its script for the content security policy."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    texts = _assets()
    jinja = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = jinja.from_string(texts["page"]).render(
        token=token, style=Markup(texts["style"]), script=Markup(texts["script"])
    )
    digest = base64.b64encode(hashlib.sha256(texts["script"].encode()).digest()).decode()
    return page, digest


@lru_cache(maxsize=1)
def _assets() -> dict[str, str]:
    """The look is that of the dashboard."""
    style = (STYLE / "page.css").read_text(encoding="utf-8") + (ASSETS / "judge.css").read_text(
        encoding="utf-8"
    )
    page = (ASSETS / "judge.html.j2").read_text(encoding="utf-8")
    return {"style": style, "script": (ASSETS / "judge.js").read_text(encoding="utf-8"), "page": page}


def serve(session: Session, port: int, ready: Callable[[str], None]) -> None:
    """Until Ctrl-C. `ready` is called with the address once it answers."""
    server = Server(session, port)
    try:
        ready(server.url)
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
        session.ratings.close()
