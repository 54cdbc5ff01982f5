"""Files on web servers, by HTTP (RFC 9110): read as a stream, in ranges where the server gives them, and taken up again where a
connection was cut. Requests are repeated after 429, 5xx and lost connections, when `Retry-After` says so or with backoff."""

from __future__ import annotations

import io
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import IO, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import obstore.store
import urllib3
from urllib3.exceptions import HTTPError

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import without_query

RETRIES = 6  # in a row without a byte
BACKOFF, BACKOFF_MAX = (
    0.5,
    30.0,
)  # seconds before the second retry, doubled with each; the first comes at once
RETRY_AFTER_MAX = 600.0  # seconds that a server may ask to wait
WINDOW_MIN, WINDOW_MAX = (
    1 << 18,
    64 << 20,
)  # bytes asked for at once: doubled while they are read one after the other
PIECE = 1 << 18  # bytes taken from a connection at a time
SPOOL_BYTES = 1 << 30  # of a file kept on disk for random access where a server gives no ranges
TIMEOUT = urllib3.Timeout(connect=15, read=60)
_REPEATED = (408, 425, 429, 500, 502, 503, 504)
_GONE = (401, 403, 404, 410)  # what a signed address answers once it has expired


class HttpStatus(Exception):
    """A server refused: its status, and its headers. The text names the URL without its query, which may hold a signature."""

    def __init__(self, url: str, status: int, reason: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"{without_query(url)}: HTTP {status} {reason}".strip())
        self.status, self.headers = status, headers


class Unseekable(Exception):
    """A file that must be read at several places, larger than `SPOOL_BYTES`, on a server that gives no ranges."""


class Unreachable(WorkError):
    """A server that does not answer, however often it is asked."""


class About(NamedTuple):
    """What a server says of a file: bytes, and what changes with it (ETag or Last-Modified; "" if it says neither)."""

    size: int
    tag: str


class _Retry(urllib3.Retry):
    def get_retry_after(self, response: Any) -> float | None:
        wanted = super().get_retry_after(response)
        return None if wanted is None else min(wanted, RETRY_AFTER_MAX)


def origin(url: str) -> tuple[str, str]:
    """Scheme, and host with port: what credentials are sent to."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, f"{parts.hostname}:{port}"


@lru_cache(maxsize=8)
def _manager(process: int, proxy: str | None) -> urllib3.PoolManager:
    """Connections of this process: a fork must not share its parent's."""
    del process
    options: dict[str, Any] = {"maxsize": 16, "timeout": TIMEOUT}
    return urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)


def ask(
    method: str, url: str, headers: Mapping[str, str] | None = None, *, body: bytes | None = None, stream: bool = False
) -> urllib3.BaseHTTPResponse:  # fmt: skip
    """A server's answer, redirects followed; `Authorization` does not go to another origin. A proxy is taken from the environment.

    With `stream` its body is not read yet, and the caller closes it. Raises `HttpStatus` for 400 and above, `Unreachable`
    for a server that cannot be reached, or whose addresses lead in a circle.
    """
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and urllib.request.proxy_bypass(parts.hostname or ""):
        proxy = None
    retries = _Retry(
        total=RETRIES, redirect=8, backoff_factor=BACKOFF, backoff_max=BACKOFF_MAX, status_forcelist=_REPEATED,
        allowed_methods=None, raise_on_status=False,
    )  # fmt: skip
    sent = {"User-Agent": "corpusmill", "Accept-Encoding": "identity", **(headers or {})}
    try:
        answer = _manager(os.getpid(), proxy).request(
            method, url, headers=sent, body=body, preload_content=not stream, decode_content=False, retries=retries,
            redirect=True,
        )  # fmt: skip
    except HTTPError as error:
        raise Unreachable(f"{without_query(url)}: {_reason(error)}") from None
    if answer.status >= 400:
        answer.close()
        raise HttpStatus(url, answer.status, answer.reason or "", answer.headers)
    return answer


def _reason(error: BaseException) -> str:
    """What is wrong with a connection, in one line that holds no address: urllib3's own texts repeat the URL."""
    cause = getattr(error, "reason", None) or error
    return f"cannot be reached ({type(cause).__name__})"


def final_url(url: str, answer: urllib3.BaseHTTPResponse) -> str:
    """Where redirects led to."""
    for step in answer.retries.history if answer.retries else ():
        if step.redirect_location:
            url = urljoin(url, step.redirect_location)
    return url


def look_up(url: str) -> About:
    """Size and change tag of a file. Raises `FileNotFoundError`, `HttpStatus` and `WorkError`.

    A server that states no length is read to the end once to count it.
    """
    try:
        answer = ask("HEAD", url)
    except HttpStatus as error:
        if error.status in (404, 410):
            raise FileNotFoundError(str(error)) from None
        if error.status in _REPEATED:
            raise
        answer = _first_byte(url)  # HEAD is refused by some servers, and by addresses signed for GET
    headers = answer.headers
    answer.close()
    _, _, whole = headers.get("Content-Range", "").rpartition("/")
    size = whole or headers.get("Content-Length", "")
    return About(
        int(size) if size.isdigit() else _count(url), headers.get("ETag") or headers.get("Last-Modified", "")
    )


def _first_byte(url: str) -> urllib3.BaseHTTPResponse:
    try:
        return ask("GET", url, {"Range": "bytes=0-0"}, stream=True)
    except HttpStatus as error:
        if error.status in (404, 410):
            raise FileNotFoundError(str(error)) from None
        if error.status == 416:  # it has no byte at all
            return ask("GET", url, stream=True)
        raise


def _count(url: str) -> int:
    answer, size = ask("GET", url, stream=True), 0
    try:
        while piece := answer.read(PIECE):
            size += len(piece)
    except (HTTPError, OSError) as error:
        raise WorkError(f"{without_query(url)}: {_reason(error)}") from None
    finally:
        answer.close()
    return size


class HttpFile(io.RawIOBase):
    """A file of `size` bytes on a web server. Raises `WorkError` where the server fails for good or the file is another one now,
    `Unseekable` where it cannot be read at several places.

    Where the first request is redirected to another origin, as to a CDN, later ones go there at once, until it refuses;
    `headers`, which may hold credentials, are sent to the origin of `url` alone. `refused` makes the error of a status.
    """

    def __init__(
        self, url: str, size: int, headers: Callable[[], Mapping[str, str]] = dict,
        refused: Callable[[HttpStatus], Exception] = lambda error: WorkError(str(error)),
    ) -> None:  # fmt: skip
        self.url, self.size, self._headers, self._refused = url, size, headers, refused
        self._at = self._reached = 0  # where the next byte is read; where the last one was taken
        self._answer: urllib3.BaseHTTPResponse | None = None
        self._next = self._end = 0  # the next byte of the answer, and the one after its last
        self._window = WINDOW_MIN
        self._target = ""  # where a redirect led to
        self._etag = ""
        self._spool: IO[bytes] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self.size)[whence])
        return self._at

    def close(self) -> None:
        self._drop()
        if self._spool is not None:
            self._spool.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self.size - self._at)
        if wanted <= 0:
            return 0
        data = self._read(min(wanted, PIECE), wanted)
        view[: len(data)] = data
        self._at += len(data)
        self._reached = self._at
        return len(data)

    def _read(self, size: int, wanted: int) -> bytes:
        tries = 0
        while True:
            try:
                if self._spool is None and (self._answer is None or self._next != self._at):
                    self._begin(wanted)
                if self._spool is not None:
                    self._spool.seek(self._at)
                    return self._spool.read(size)
                assert self._answer is not None
                data = self._answer.read(min(size, self._end - self._next))
                self._next += len(data)
                if self._next >= self._end:
                    self._drop()
                if data:
                    return data
                reason = "the server ends the file early"
            except (HTTPError, OSError) as error:
                reason = _reason(error)
            except HttpStatus as error:
                if not (self._target and error.status in _GONE):
                    raise self._refused(error) from None
                self._target, self._etag, reason = "", "", str(error)
            self._drop()
            tries += 1
            if tries > RETRIES:
                where = f"after byte {self._at} of {self.size}"
                raise WorkError(f"{without_query(self.url)}: {reason}, {where}, {tries} times in a row")
            time.sleep(min(BACKOFF * 2 ** (tries - 1), BACKOFF_MAX) if tries > 1 else 0)

    def _begin(self, wanted: int) -> None:
        """Ask for the bytes from `_at` on: as many as are wanted, or more where they follow those taken last."""
        self._drop()
        follows = self._at == self._reached
        self._window = min(2 * self._window, WINDOW_MAX) if follows else WINDOW_MIN
        end = min(self.size, self._at + max(wanted, self._window))
        about = {"Range": f"bytes={self._at}-{end - 1}"}
        url = self._target or self.url
        answer = ask("GET", url, about if self._target else {**about, **self._headers()}, stream=True)
        target = final_url(url, answer)
        if not self._target and origin(target) != origin(self.url):
            self._target = target
        self._answer = answer
        self._same(answer)
        if answer.status == 206:
            self._next, self._end = self._at, end
        elif self._at == 0 or follows:
            self._next, self._end = 0, self.size
            self._skip_to(self._at)
        else:
            self._spool = self._kept(answer)
            self._drop()

    def _same(self, answer: urllib3.BaseHTTPResponse) -> None:
        """Raises `WorkError` if the answer is of another file than those before, or of other bytes than were asked for."""
        etag, place = answer.headers.get("ETag", ""), answer.headers.get("Content-Range", "")
        first, _, whole = place.removeprefix("bytes ").partition("/")
        if answer.status == 206:
            wrong = first.partition("-")[0] != str(self._at) or whole not in ("*", str(self.size))
        else:
            wrong = answer.headers.get("Content-Length", str(self.size)) != str(self.size)
        if wrong or (etag and self._etag and etag != self._etag):
            self._drop()
            raise WorkError(
                f"{without_query(self.url)}: changed while it was read; run the command again"
            ) from None
        self._etag = etag or self._etag

    def _skip_to(self, place: int) -> None:
        assert self._answer is not None
        while self._next < place:
            piece = self._answer.read(min(PIECE, place - self._next))
            if not piece:
                raise OSError("the server ends the file early")
            self._next += len(piece)

    def _kept(self, answer: urllib3.BaseHTTPResponse) -> IO[bytes]:
        """The whole file on disk, in a temporary file without a name."""
        if self.size > SPOOL_BYTES:
            raise Unseekable(
                f"its server gives no byte ranges, and it has {self.size} bytes; kept on disk are {SPOOL_BYTES} at most"
            )
        spool = tempfile.TemporaryFile()  # noqa: SIM115 (closed with this file)
        kept = 0
        while kept < self.size and (piece := answer.read(min(PIECE, self.size - kept))):
            kept += spool.write(piece)
        if kept < self.size:
            spool.close()
            raise OSError("the server ends the file early")
        return spool

    def _drop(self) -> None:
        if self._answer is not None:
            if self._next >= self._end:
                self._answer.release_conn()
            else:
                self._answer.close()
            self._answer = None


class HttpStore(obstore.store.HTTPStore):
    """obstore's store of a web server (which lists and writes by WebDAV), with files looked up and read as above.

    A path may have a query, as signed addresses do.
    """

    def head(self, path: str) -> Any:
        """As obstore's `head`, but a server need not state length, ETag or time."""
        about = self._about(path)
        return {"path": path, "size": about.size, "e_tag": about.tag, "last_modified": ""}

    def open_file(self, path: str, size: int | None = None) -> HttpFile:
        """A file to be read; without its size the server is asked for it."""
        return HttpFile(self._url(path), self._about(path).size if size is None else size)

    def _about(self, path: str) -> About:
        try:
            return look_up(self._url(path))
        except HttpStatus as error:
            raise WorkError(str(error)) from None

    def _url(self, path: str) -> str:
        return f"{str(self.url).rstrip('/')}/{path}"


def http_store(root: str) -> HttpStore:
    """The store of a server, by scheme and host. Raises `UserError` for a URL with a user or password in it."""
    if "@" in urlsplit(root).netloc:
        raise UserError(
            f"{without_query(root)}: a URL with a user or password in it is not read; such URLs end up in records and logs"
        )
    return HttpStore.from_url(root, client_options={"allow_http": root.startswith("http:")})
