"""Web servers on loopback: a base with byte ranges and faults, and one that speaks the Hugging Face Hub's API for data sets (uploads:
`hub_uploads.py`), with a second server in the role of its CDN. `tests/common/test_hub.py` holds it against `huggingface_hub`."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from corpusmill.common import http_files
from tests import hub_uploads

PAGE = 3  # entries of a page of the Hub's listings
LFS_BYTES = 1000  # larger files are in Git LFS


class Asked(NamedTuple):
    """One request that a server saw."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def range(self) -> str:
        return self.headers.get("range", "")


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012
    cut: int | None = None  # bytes of the body after which the connection is reset
    ranges: bool = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = Asked(
            self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body
        )
        self.server.asked.append(asked)
        fault = next(filter(None, (fault(asked) for fault in self.server.faults)), None)
        self.answer(asked, fault or self.server.respond(asked))

    do_HEAD = do_POST = do_PUT = do_GET

    def answer(self, asked: Asked, answer: Answer) -> None:
        status, body, headers = answer.status, memoryview(answer.body), dict(answer.headers)
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.range)
        if status == 200 and answer.ranges:
            headers["Accept-Ranges"] = "bytes"
            if span:
                first, last = int(span[1]), min(int(span[2] or len(body)), len(body) - 1)
                if first >= len(body):
                    status, headers["Content-Range"], body = 416, f"bytes */{len(body)}", body[:0]
                else:
                    headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
                    status, body = 206, body[first : last + 1]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Transfer-Encoding" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if asked.method == "HEAD":
            return
        if "Transfer-Encoding" in headers:
            for begin in range(0, len(body), 1000):
                piece = body[begin : begin + 1000]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        elif answer.cut is not None and answer.cut < len(body):
            self.wfile.write(body[: answer.cut])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1))
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Quiet."""


class Server(ThreadingHTTPServer):
    """Answers by `respond`, unless one of `faults` gives an answer; `asked` has every request."""

    daemon_threads = True

    def __init__(self, respond: Callable[[Asked], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.respond = respond
        self.asked: list[Asked] = []
        self.faults: list[Callable[[Asked], Answer | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client may leave at any time
            super().handle_error(request, client_address)

    def once(self, fits: Callable[[Asked], bool], answer: Answer | Callable[[Asked], Answer]) -> None:
        """The next request that fits gets this answer."""
        left = [1]

        def fault(asked: Asked) -> Answer | None:
            if not (left and fits(asked)):
                return None
            left.clear()
            return answer(asked) if callable(answer) else answer

        self.faults.append(fault)


@contextmanager
def serving(respond: Callable[[Asked], Answer]) -> Iterator[Server]:
    with Server(respond) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def files_of(files: dict[str, bytes], **headers: str) -> Callable[[Asked], Answer]:
    """The files of a plain web server, by path; each with its hash as ETag."""

    def respond(asked: Asked) -> Answer:
        data = files.get(unquote(urlsplit(asked.path).path))
        if data is None:
            return Answer(404)
        return Answer(200, data, {"ETag": f'"{hashlib.md5(data).hexdigest()}"', **headers})

    return respond


@dataclass
class Repo:
    """A data set: its commits by id, each the files at that time; branches and tags."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """A new state of all files, at which the branch is from now on."""
        content = repr((sorted(files.items()), len(self.commits))).encode()
        commit = hashlib.sha1(content).hexdigest()
        self.commits[commit] = dict(files)
        self.refs[branch] = commit
        return commit


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_lfs(path: str, data: bytes) -> bool:
    return len(data) > LFS_BYTES or path.endswith((".parquet", ".gz", ".zst"))


class Hub:
    """The Hub's API for data sets, on `server`; files in Git LFS are redirected to `cdn` with a signed address."""

    token = "hf_secret"

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.blobs: dict[str, bytes] = {}  # uploaded objects of Git LFS, by SHA-256
        self.server: Server
        self.cdn: Server

    @property
    def url(self) -> str:
        return self.server.url

    def repo(self, name: str, files: dict[str, bytes], **about: bool) -> Repo:
        self.repos[name] = Repo(**about)
        self.repos[name].commit(files)
        return self.repos[name]

    def reads(self) -> list[Asked]:
        """Requests for the content of files."""
        return [
            asked for asked in (*self.server.asked, *self.cdn.asked) if "/resolve/" in asked.path or asked in self.cdn.asked
        ]  # fmt: skip

    def from_cdn(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        if "Signature" not in parse_qs(parts.query):
            return Answer(403)
        if asked.method == "PUT":
            return Answer(hub_uploads.stored(self, asked))
        for repo in self.repos.values():
            for files in repo.commits.values():
                for data in files.values():
                    if hashlib.sha256(data).hexdigest() == parts.path.rpartition("/")[2]:
                        return Answer(200, data, {"ETag": f'"cdn-{len(data)}"'})
        return Answer(404)

    def respond(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        steps = [unquote(step) for step in parts.path.strip("/").split("/")]
        if steps == ["api", "datasets"]:
            author = parse_qs(parts.query)["author"][0]
            return _json([{"id": name} for name in sorted(self.repos) if name.startswith(f"{author}/")])
        if steps == ["api", "validate-yaml"]:
            return _json(*hub_uploads.validated(asked))
        if steps == ["api", "repos", "create"]:
            return _json(*hub_uploads.created(self, asked))
        if steps[-4:] == ["info", "lfs", "objects", "batch"]:
            steps = ["api", "datasets", steps[1], steps[2].removesuffix(".git"), "batch", "main"]
        api = steps[0] == "api"
        if len(steps) < (4 if api else 3):
            return Answer(404)
        _, owner, name, *rest = steps[1:] if api else steps
        verb, *rest = rest or ["revision", "main"]
        repo = self.repos.get(f"{owner}/{name}")
        allowed = asked.headers.get("authorization") == f"Bearer {self.token}"
        if repo is None or (repo.private and not allowed):
            known = allowed or "authorization" not in asked.headers
            return _json(
                {"error": "Repository not found"},
                404 if allowed else 401,
                code="RepoNotFound" if known else "",
            )
        if verb in ("preupload", "batch", "commit"):
            return _json(*hub_uploads.uploaded(self, f"{owner}/{name}", verb, asked))
        if verb == "refs":
            return _json(
                {
                    "branches": [
                        {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit}
                        for name, commit in repo.refs.items()
                        if not name.startswith("refs/")
                    ],
                    "converts": [
                        {"name": name.rpartition("/")[2], "ref": name, "targetCommit": commit}
                        for name, commit in repo.refs.items()
                        if name.startswith("refs/")
                    ],
                    "tags": [],
                }
            )
        commit = repo.refs.get(rest[0], rest[0])
        files = repo.commits.get(commit)
        if files is None:
            return _json({"error": f"Invalid rev id: {rest[0]}"}, 404, code="RevisionNotFound")
        path = "/".join(rest[1:])
        if verb == "revision":
            about = {
                "_id": "1",
                "id": f"{owner}/{name}",
                "sha": commit,
                "siblings": [{"rfilename": p} for p in files],
            }
            return _json({**about, "private": repo.private, "gated": repo.gated, "tags": [], "downloads": 0})
        if repo.gated and not allowed:
            return _json({"error": "Access is restricted"}, 403, code="GatedRepo")
        if verb == "tree":
            return self.tree(asked, files, path)
        if verb == "paths-info":
            body = asked.body.decode()
            paths = (
                json.loads(body)["paths"]
                if asked.headers.get("content-type", "").startswith("application/json")
                else parse_qs(body)["paths"]
            )
            every = {entry["path"]: entry for entry in _entries(files, "", True)}
            return _json([every[path] for path in paths if path in every])
        assert verb == "resolve", asked.path
        if path not in files:
            return _json({"error": "Entry not found"}, 404, code="EntryNotFound")
        data = files[path]
        if is_lfs(path, data):
            digest = hashlib.sha256(data).hexdigest()
            return Answer(
                302, b"", {
                    "Location": f"{self.cdn.url}/{owner}/{digest}?Expires=1&Signature=abc", "X-Repo-Commit": commit,
                    "X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{digest}"',
                },
            )  # fmt: skip
        return Answer(200, data, {"ETag": f'"{git_oid(data)}"', "X-Repo-Commit": commit})

    def tree(self, asked: Asked, files: dict[str, bytes], path: str) -> Answer:
        query = parse_qs(urlsplit(asked.path).query)
        below = f"{path}/" if path else ""
        if path and not any(name.startswith(below) for name in files):
            return _json({"error": "Entry not found"}, 404, code="EntryNotFound")
        entries = _entries(files, below, query.get("recursive", ["false"])[0].lower() == "true")
        begin = int(query.get("cursor", ["0"])[0])
        headers = {}
        if begin + PAGE < len(entries):
            where = urlsplit(asked.path)
            kept = "&".join(
                part for part in where.query.split("&") if part and not part.startswith("cursor=")
            )
            link = f"{self.url}{where.path}?{kept}&cursor={begin + PAGE}"
            headers["Link"] = f'<{link}>; rel="next"'
        return _json(entries[begin : begin + PAGE], headers=headers)


def _entries(files: dict[str, bytes], below: str, recursive: bool) -> list[dict[str, Any]]:
    """Files and folders below a folder, as the Hub describes them."""
    found: dict[str, dict[str, Any]] = {}
    for path, data in sorted(files.items()):
        if not path.startswith(below):
            continue
        steps = path[len(below) :].split("/")
        for depth in range(1, len(steps)):
            folder = below + "/".join(steps[:depth])
            if recursive or depth == 1:
                found[folder] = {
                    "type": "directory",
                    "oid": git_oid(folder.encode()),
                    "size": 0,
                    "path": folder,
                }
        if recursive or len(steps) == 1:
            entry: dict[str, Any] = {"type": "file", "oid": git_oid(data), "size": len(data), "path": path}
            if is_lfs(path, data):
                digest = hashlib.sha256(data).hexdigest()
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(data)}\n".encode()
                entry["oid"] = git_oid(pointer)
                entry["lfs"] = {"oid": digest, "size": len(data), "pointerSize": len(pointer)}
            found[path] = entry
    return list(found.values())


def _json(value: Any, status: int = 200, code: str = "", headers: dict[str, str] | None = None) -> Answer:
    about = {"Content-Type": "application/json; charset=utf-8", **(headers or {})}
    if code:
        about |= {"X-Error-Code": code, "X-Error-Message": quote(str(value))}
    return Answer(status, json.dumps(value).encode(), about, ranges=False)


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    with serving(hub.respond) as server, serving(hub.from_cdn) as cdn:
        hub.server, hub.cdn = server, cdn
        yield hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub without data sets, in an environment that leads to it."""
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    monkeypatch.setattr(http_files, "BACKOFF", 0.01)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server
