"""Opening object stores, asking them again after a passing failure, and what a failure of one means for the user."""

from __future__ import annotations

import contextlib
import io
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.format import masked
from corpusmill.common.traffic import TRAFFIC

WEB = ("https", "http", "hf")  # read by `corpusmill.common.http_files`
S3 = ("s3", "s3a")
AZURE = ("az", "abfs", "abfss")

AT_ONCE = 16  # deletions
TRIES = 6  # of one call
PAUSE = 0.25  # seconds before the second try, doubled for each further one
LONG = 30.0  # a call that failed after so many seconds has been repeated long enough by the store's client

Result = TypeVar("Result")


class Missing(FileNotFoundError):
    """No such object: what a `Folder` raises, with its URL."""


# What each kind of store takes its credentials from, as the client library names the variables.
_WANTED = {
    **dict.fromkeys(
        S3,
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for a server of your own AWS_ENDPOINT_URL too), or"
        " AWS_SKIP_SIGNATURE=true for a public bucket; profiles in ~/.aws are not read",
    ),
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account's key, or GOOGLE_SKIP_SIGNATURE=true for a"
    " public bucket",
    **dict.fromkeys(
        AZURE,
        "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or"
        " AZURE_SKIP_SIGNATURE=true for a public container",
    ),
}

# Where each kind of store may have a server of one's own; the first that is set counts.
_ENDPOINTS = {
    **dict.fromkeys(S3, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")),
    "gs": ("GOOGLE_BASE_URL",),
    **dict.fromkeys(AZURE, ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")),
}


@lru_cache(maxsize=64)
def open_store(root: str, once: bool = False) -> Any:
    """The obstore store of a URL's root (scheme and bucket); local paths share one store at `/`. With `once`, a remote
    store asks once per call and waits as long as its caller does: for callers with retries and limits of their own.

    Raises `UserError`, for missing variables or a bad name too.
    """
    import obstore.store

    scheme, _, bucket = root.partition("://")
    if scheme in WEB and not once:
        from corpusmill.common.hub import web_store

        return web_store(root)
    if scheme in (*S3, "gs") and "@" in bucket:
        raise UserError(
            f"{masked(root)}: a key in a URL ends up in records and logs, and is not read; {_WANTED[scheme]}"
        )
    try:
        if scheme == "file":
            return obstore.store.LocalStore("/")
        if scheme == "memory":
            return obstore.store.MemoryStore()
        options: dict[str, Any] = {}
        if _plain_http(scheme):
            options["client_options"] = {"allow_http": True}  # obstore refuses plain HTTP by default
        if once:
            options["client_options"] = {**options.get("client_options", {}), "timeout": "1h"}
            options["retry_config"] = {"max_retries": 0}
        return obstore.store.from_url(root, **options)
    except Exception as error:
        advice = f"; {_WANTED[scheme]}" if scheme in AZURE and "Account must be" in str(error) else ""
        raise UserError(f"{root}: cannot be opened as a store: {first_line(error)}{advice}") from None


def _plain_http(scheme: str) -> bool:
    """Whether the environment names a server of one's own, or an emulator, that is reached without TLS."""
    emulator = os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower()
    if scheme in AZURE and emulator in ("1", "true", "yes", "on"):
        return True
    endpoint = next((os.environ[name] for name in _ENDPOINTS.get(scheme, ()) if os.environ.get(name)), "")
    return endpoint.startswith("http://")


def present(store: Any, root: str, path: str, tag: str) -> dict[str, Any]:
    """The condition of a write that the present object has this tag; empty if it is known to have another."""
    if not root.startswith("gs://"):
        return {"e_tag": tag}
    meta = store.head(path)  # Google's condition is a generation
    return {"e_tag": tag, "version": meta["version"]} if meta["e_tag"] == tag else {}


def delete(store: Any, paths: list[str]) -> None:
    """Delete objects, whether they are there or not."""

    def one(path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            store.delete(path)

    try:
        store.delete(paths)
    except FileNotFoundError:  # S3 does not mind one that is missing; others may stop there
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(one, paths))


def first_line(error: BaseException) -> str:
    """An error's first line, without secrets."""
    return masked((str(error).strip() or type(error).__name__).splitlines()[0])


def again(call: Callable[[], Result], remote: bool) -> Result:
    """`call()`, repeated after failures of a remote store that may pass, up to `TRIES` times: the store's client repeats
    requests that were refused, but not those whose answer broke off."""
    for number in range(TRIES):
        start = time.monotonic()
        try:
            return call()
        except Exception as error:
            if number + 1 == TRIES or not (remote and passing(error)) or time.monotonic() - start > LONG:
                raise
        time.sleep(PAUSE * 2**number * random.uniform(0.5, 1))
    raise AssertionError("unreachable")


def passing(error: BaseException) -> bool:
    """Whether a store may answer the same request later: not where something is missing, forbidden or not supported."""
    from obstore.exceptions import BaseError, GenericError

    if isinstance(error, GenericError):
        text = str(error)
        return not (_no_credentials(text) or "after 10 retries" in text or " 403 " in text or " 400 " in text)
    return isinstance(error, OSError) and not isinstance(
        error, BaseError | FileNotFoundError | PermissionError
    )


def _no_credentials(text: str) -> bool:
    """Whether a store's client asked the machine's cloud for credentials in vain: there are none in the environment."""
    metadata = ("169.254.169.254", "metadata.google.internal", "performing token request")
    return any(sign in text for sign in metadata)


def failure(url: str, root: str, what: str, error: BaseException) -> Exception:
    """The error to raise where a store could not `what` (read, write, list, ...) the object at `url`: `UserError` for a bucket
    or credentials that are missing, `Missing` for the object, `WorkError` for all else."""
    if isinstance(error, UserError | WorkError):
        return error
    scheme, text = root.partition("://")[0], str(error)
    advice = _WANTED.get(scheme, "")
    if advice and _no_credentials(text):
        return UserError(f"{root}: no credentials in the environment; {advice}")
    if advice and any(sign in text for sign in (" 401 ", " 403 ")):
        return WorkError(
            f"{url}: cannot {what}: access is denied to the credentials in the environment{_code(text)}; check them and"
            f" their rights, or {advice}"
        )
    # Where a store has no such prefix it lists nothing: 404 is said of the bucket (over HTTP, of the folder).
    no_bucket = what == "list" and "404 Not Found" in text and scheme not in WEB
    if no_bucket or "NoSuchBucket" in text or (isinstance(error, FileNotFoundError) and what == "write"):
        return UserError(f"{root}: no such bucket, or no right to see it; create it, or check its name")
    # Below a file there is nothing to find; a write there fails with that reason.
    if isinstance(error, FileNotFoundError) or ("Not a directory" in text and what != "write"):
        return Missing(f"{url}: not found")
    if "Read-only file system" in text:
        return WorkError(
            f"{url}: cannot {what}: its disk is read-only; make it writable and give the same command again: finished work is kept"
        )
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return WorkError(
            f"{url}: cannot {what}: no space is left on its disk; free some and give the same command again: finished work is kept"
        )
    return WorkError(f"{url}: cannot {what}: {first_line(error)}")


def _code(text: str) -> str:
    """The code of an S3 error, such as `(SignatureDoesNotMatch)`."""
    return f" ({text.split('<Code>')[1].split('</Code>')[0][:40]})" if "<Code>" in text else ""


class Reopened(io.RawIOBase):
    """An object of a store as a raw stream, opened again at its place after a passing failure. `opened` opens it at its
    beginning, `ask` makes calls and repeats those that fail."""

    def __init__(self, opened: Callable[[], Any], ask: Callable[[str, Callable[[], bytes]], bytes]) -> None:
        self.opened, self.ask, self.at = opened, ask, 0
        self.source: Any = again(self._open, remote=True)

    def _open(self) -> Any:
        source = self.opened()
        if self.at:
            source.seek(self.at)
        return source

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = int(self.source.seek(offset, whence))
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        def read() -> bytes:
            try:
                found = bytes(self.source.read(len(buffer)))
            except Exception as error:
                if passing(error):  # its buffer may be lost with the answer
                    self.source = self._open()
                raise
            TRAFFIC.add(read=len(found))
            return found

        data = self.ask("read", read)
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)
