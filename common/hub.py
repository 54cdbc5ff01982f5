"""Data sets on the Hugging Face Hub: `hf://datasets/OWNER/NAME[@REVISION]/PATH`, read only, by the Hub's HTTP API.

A revision is a branch, a tag or a commit; a `/` in it is written `%2F` (`@refs%2Fconvert%2Fparquet`), as `HfFileSystem` of
huggingface_hub has it. `pin` resolves it to a commit, so that all reads of a run are of one state of the data set. The Hub gives a hash
of each file's content: SHA-256 of files in Git LFS or Xet, Git's SHA-1 of others; it is the change tag.

`HF_ENDPOINT`, `HF_TOKEN` (or the token that `hf auth login` saved) and `HF_HUB_OFFLINE` are read from the environment. The token is
sent to the endpoint alone, and is in no message.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin

from corpusmill.common.errors import UserError, WorkError, nearest
from corpusmill.common.http_files import HttpFile, HttpStatus, ask, http_store, origin

SCHEME = "hf://datasets/"
LFS, GIT = "lfs-sha256:", "git-sha1:"  # how change tags begin
_ENDPOINT = "https://huggingface.co"
_PLACE = re.compile(r"([^/@]+/[^/@]+)(?:@(refs/(?:convert/[^/]+|pr/[0-9]+)|[^/]+))?(?:/(.*))?", re.S)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HINTS = 1000  # names looked through for the nearest


_Page = list[tuple[dict[str, Any], str]]  # (description, kind) of entries of a listing


class Place(NamedTuple):
    """A place in a data set; `revision` as Git names it, `path` below the data set's root, "" for the root."""

    repo: str
    revision: str
    path: str

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return _COMMIT.fullmatch(self.revision) is not None

    @property
    def shown(self) -> str:
        """The data set with its revision, as in a URL."""
        return f"{SCHEME}{self.repo}@{quote(self.revision, safe='')}"


def parse(path: str) -> Place:
    """The place that `OWNER/NAME[@REVISION][/PATH]` names. Raises `UserError`."""
    match = _PLACE.fullmatch(path.strip("/"))
    if match is None:
        raise UserError(f"{SCHEME}{path}: not a data set; allowed: {SCHEME}OWNER/NAME[@REVISION]/PATH")
    repo, revision, below = match.groups()
    return Place(repo, unquote(revision or "main"), below or "")


def pin(url: str, known: MutableMapping[str, str] | None = None) -> str:
    """The URL with the commit that its revision now is; `known` has the commits of revisions (`Place.shown`) that were asked for,
    and is asked first.

    Raises `UserError` where there is no such data set or revision, or no right to read it, and `WorkError`.
    """
    place = parse(url.removeprefix(SCHEME))
    if place.pinned:
        return url
    known = {} if known is None else known
    if place.shown not in known:
        answer = _get(place, f"api/datasets/{place.repo}/revision/{quote(place.revision, safe='')}")
        commit = str(json.loads(answer.data).get("sha", ""))
        if not _COMMIT.fullmatch(commit):
            raise WorkError(f"{place.shown}: the Hub names no commit of this revision")
        known[place.shown] = commit
    return SCHEME + f"{place.repo}@{known[place.shown]}/{place.path}".rstrip("/")


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")


def _token() -> str | None:
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    if token or os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return token
    from huggingface_hub import get_token

    return get_token()


def _headers() -> dict[str, str]:
    token = _token()
    return {"Authorization": f"Bearer {token.strip()}"} if token else {}


def _online(place: Place) -> None:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise UserError(
            f"{place.shown}: HF_HUB_OFFLINE is set; unset it, or name a local copy of the data set in paths"
        )


def _get(place: Place, path: str, body: bytes | None = None) -> Any:
    """The answer of the Hub to `path`, or to a whole URL that it gave; raises `UserError` and `WorkError` about `place`."""
    _online(place)
    url = urljoin(f"{_endpoint()}/", path)
    headers = _headers() if origin(url) == origin(_endpoint()) else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        return ask("GET" if body is None else "POST", url, headers, body=body)
    except HttpStatus as error:
        raise _refused(place, error) from None


def _refused(place: Place, error: HttpStatus) -> Exception:
    """What a status of the Hub means for the user. The Hub answers 401 for what is private and for what is not there."""
    code = error.headers.get("X-Error-Code", "")
    page = f"{_endpoint()}/datasets/{place.repo}"
    dataset = f"{SCHEME}{place.repo}"
    if code == "EntryNotFound":
        return FileNotFoundError(f"{place.shown}/{place.path}")
    if code == "RevisionNotFound":
        return UserError(
            f"{dataset}: no revision '{place.revision}'{nearest(place.revision, _revisions(place))}; branches, tags and"
            f" commits are at {page}/commits"
        )
    if code == "GatedRepo":
        return UserError(
            f"{dataset}: gated: accept its terms at {page}, and set HF_TOKEN to a token of that account"
        )
    if error.status in (401, 403) or code == "RepoNotFound" or error.status == 404:
        hint = nearest(place.repo, _names(place))
        token = (
            "the token in HF_TOKEN may not read it" if _token() else "set HF_TOKEN, if it is private or gated"
        )
        return UserError(f"{dataset}: no such data set, or no right to read it{hint}; {token}")
    return WorkError(f"{place.shown}: {error}")


def _revisions(place: Place) -> list[str]:
    """Names of branches and tags, for a hint."""
    try:
        found = json.loads(ask("GET", f"{_endpoint()}/api/datasets/{place.repo}/refs", _headers()).data)
        kinds = ("branches", "tags", "converts")
        return [
            str(ref["name" if kind != "converts" else "ref"]) for kind in kinds for ref in found.get(kind, [])
        ][:_HINTS]
    except (HttpStatus, WorkError, ValueError, KeyError, AttributeError, TypeError):
        return []


def _names(place: Place) -> list[str]:
    """Names of the owner's data sets, for a hint."""
    owner = quote(place.repo.partition("/")[0], safe="")
    try:
        found = json.loads(
            ask("GET", f"{_endpoint()}/api/datasets?author={owner}&limit={_HINTS}", _headers()).data
        )
        return [str(one["id"]) for one in found if str(one["id"]) != place.repo]
    except (HttpStatus, WorkError, ValueError, KeyError, AttributeError, TypeError):
        return []


def _meta(above: str, entry: dict[str, Any]) -> dict[str, Any]:
    """A file of the Hub's listing as obstore describes an object."""
    lfs = entry.get("lfs")
    tag = f"{LFS}{lfs['oid']}" if lfs else f"{GIT}{entry['oid']}"
    return {"path": f"{above}/{entry['path']}", "size": int(entry["size"]), "e_tag": tag, "last_modified": ""}


class HubStore:
    """The Hub's data sets with those calls of an obstore store with which `Folder` reads. Paths are `OWNER/NAME[@REVISION]/PATH`."""

    def head(self, path: str) -> dict[str, Any]:
        """Size and content hash of a file; raises `FileNotFoundError` if there is none, or a folder."""
        place = parse(path)
        body = json.dumps({"paths": [place.path], "expand": False}).encode()
        url = f"api/datasets/{place.repo}/paths-info/{quote(place.revision, safe='')}"
        for entry in json.loads(_get(place, url, body).data) if place.path else ():
            if entry["type"] == "file" and entry["path"] == place.path:
                return {**_meta("", entry), "path": path}
        raise FileNotFoundError(path)

    def list(self, prefix: str | None = None) -> Iterator[list[dict[str, Any]]]:
        """All files below a folder of a data set, page by page."""
        for page in self._tree(prefix, recursive=True):
            yield [meta for meta, kind in page if kind == "file"]

    def list_with_delimiter(self, prefix: str | None = None) -> dict[str, Any]:
        """Files and folders directly below a folder."""
        found = [one for page in self._tree(prefix, recursive=False) for one in page]
        folders = [meta["path"] for meta, kind in found if kind != "file"]
        return {
            "common_prefixes": folders,
            "objects": [meta for meta, kind in found if kind == "file"],
        }

    def _tree(self, prefix: str | None, recursive: bool) -> Iterator[_Page]:
        place = parse(prefix or "")
        path = place.path.strip("/")
        above = (prefix or "").strip("/").removesuffix(path).rstrip("/")
        below = f"/{quote(path)}" if path else ""
        query = f"recursive={str(recursive).lower()}&expand=false"
        url = f"api/datasets/{place.repo}/tree/{quote(place.revision, safe='')}{below}?{query}"
        while url:
            answer = _get(place, url)
            yield [
                (_meta(above, {"size": 0, **entry}), str(entry["type"])) for entry in json.loads(answer.data)
            ]
            url = _next_page(answer.headers.get("Link", ""))

    def open_file(self, path: str, size: int | None = None) -> HttpFile:
        """A file to be read, as a stream or at several places; without its size the Hub is asked for it."""
        place = parse(path)
        _online(place)
        url = f"{_endpoint()}/datasets/{place.repo}/resolve/{quote(place.revision, safe='')}/{quote(place.path)}"
        known = int(self.head(path)["size"]) if size is None else size
        return HttpFile(url, known, _headers, lambda error: _refused(place, error))

    def get(self, path: str) -> _Whole:
        """The whole file."""
        with io.BufferedReader(self.open_file(path)) as file:
            return _Whole(file.read())

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Bytes of a file, fewer where it ends."""
        with io.BufferedReader(self.open_file(path)) as file:
            file.seek(start)
            return file.read(length)

    def put(self, path: str, data: bytes) -> None:
        """Raises `UserError`: data sets are only read."""
        raise UserError(
            f"{SCHEME}{path}: data sets of the Hub are read only; write to a folder or an object store"
        )

    def delete(self, paths: Any) -> None:
        """Raises `UserError`, as `put`."""
        self.put(str(paths), b"")


def web_store(root: str) -> Any:
    """The store of a URL's root: of the Hub, or of a web server. Raises `UserError` for one of the Hub that is no data set's."""
    if root.startswith("http"):
        return http_store(root)
    if f"{root}/" != SCHEME:
        raise UserError(f"{root}: only data sets of the Hub are read: {SCHEME}OWNER/NAME[@REVISION]/PATH")
    return HubStore()


class _Whole:
    """What obstore's `get` gives: the bytes, asked for by a call."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self) -> bytes:
        return self._data


def _next_page(link: str) -> str:
    """The URL with `rel="next"` in a Link header (RFC 8288); "" if there is none."""
    for part in re.finditer(r"<([^>]*)>([^<]*)", link):
        if re.search(r'rel="?next"?', part[2]):
            return part[1]
    return ""
