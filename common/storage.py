"""Files by URL: a local path, `file://`, `s3://`, `gs://`, `az://` or `memory://`, all read and written alike; `https://` and
data sets of the Hugging Face Hub (`hf://`), read.

`Folder` is the only way to storage in `pipeline` and `train`. A `write` is atomic: readers see the whole new object or
the old state (local files go through a temporary name and a rename; object stores publish on completion).
Credentials come from the environment alone (`AWS_*`, `AWS_ENDPOINT_URL`), never from a config.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, TypeVar, cast

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.stores import WEB, Missing, Reopened, again, delete, failure, open_store, present
from corpusmill.common.traffic import TRAFFIC, CountedStream

IN_FLIGHT = 16  # reads of a remote store that wait for their answers at once
PART, PARTS = 16 << 20, 4  # bytes of a part of an upload, and parts under way at once
REMOTE = ("s3", "gs", "az", "https", "hf", "s3a", "abfs", "abfss", "http", "memory")

Item = TypeVar("Item")
Result = TypeVar("Result")


class Entry(NamedTuple):
    """A listed object: its path relative to the folder, bytes, and the store's change tag."""

    path: str
    size: int
    tag: str


class Truncated(WorkError):
    """The object ends before the bytes that were asked for."""


class Changed(Exception):
    """The object is another one than the tag names that was asked for."""


class Tagged(NamedTuple):
    """Bytes of an object as they came (any buffer, not copied), what tells this object from a later one of the same
    name (an ETag that `If-Match` takes; empty if the store has none, or a weak one), and the whole object's bytes."""

    data: Any
    tag: str
    size: int


class Folder:
    """A place in a store, named by a URL; `folder / "name"` goes down. Picklable, and safe in workers.

    Raises `FileNotFoundError` for a missing object and `WorkError`, naming the URL, for any other failure.
    """

    def __init__(self, url: str | Path) -> None:
        text = str(url)
        scheme, sep, rest = text.partition("://")
        if sep and scheme in REMOTE:
            bucket, _, path = rest.partition("/")
            self.root = f"{scheme}://{bucket}"
            self.path = path.lstrip("/") if "?" in path else path.strip("/")  # a query stays as it is
        elif sep and scheme != "file":
            raise UserError(
                f"{text}: unknown kind of URL '{scheme}://'; allowed: a path, file, {', '.join(REMOTE)}"
            )
        else:
            local: str | Path = rest if sep else text
            if "~" in text:  # rare; a `Path` for each of many small files takes longer than to open it
                local = Path(local).expanduser()
            self.root, self.path = "file://", os.path.abspath(local).strip("/")  # noqa: PTH100 (links stay links)

    @property
    def local(self) -> bool:
        return self.root == "file://"

    @property
    def url(self) -> str:
        """What to show a user, and what `Folder` takes back."""
        return f"/{self.path}" if self.local else f"{self.root}/{self.path}"

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folder) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __truediv__(self, name: str) -> Folder:
        down = Folder.__new__(Folder)
        down.root = self.root
        down.path = "/".join(part for part in (self.path, *name.split("/")) if part not in ("", "."))
        return down

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def parent(self) -> Folder:
        up = Folder.__new__(Folder)
        up.root, up.path = self.root, self.path.rpartition("/")[0]
        return up

    def within(self, other: Folder) -> bool:
        """Whether this is `other`, or below it; locally whatever links lead there."""
        here, there = (os.path.realpath(f.url) if f.local else f.url for f in (self, other))
        return f"{here.rstrip('/')}/".startswith(f"{there.rstrip('/')}/")

    @property
    def store(self) -> Any:
        return open_store(self.root)

    @property
    def _repeats(self) -> bool:
        """Whether calls that failed are repeated: those to web servers repeat themselves."""
        return not self.local and self.root.partition("://")[0] not in (*WEB, "memory")

    def _failed(self, what: str, error: BaseException) -> Exception:
        return failure(self.url, self.root, what, error)

    def _ask(self, what: str, call: Callable[[], Result]) -> Result:
        """`call()`, again after passing failures of a remote store."""
        try:
            return again(call, self._repeats)
        except Exception as error:
            raise self._failed(what, error) from None

    def read(self) -> bytes:
        """The whole object."""
        TRAFFIC.add(gets=1)
        data = self._ask("read", lambda: bytes(self.store.get(self.path).bytes()))
        TRAFFIC.add(read=len(data))
        return data

    def read_range(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`; raises `WorkError` if the object ends before that."""
        if size == 0:
            return b""  # stores refuse such a range
        TRAFFIC.add(gets=1)
        data = self._ask("read", lambda: bytes(self.store.get_range(self.path, start=offset, length=size)))
        TRAFFIC.add(read=len(data))
        if len(data) != size:
            raise Truncated(f"{self.url}: truncated: {size} bytes asked at {offset}, {len(data)} there")
        return data

    def read_tagged(self, offset: int, size: int, if_match: str = "") -> Tagged:
        """Up to `size` bytes from `offset` of a local file, in one read; its tag is made of inode, time and size.

        Raises `Changed` if the tag is not `if_match`, `Truncated` if the file has no byte at `offset`.
        """
        try:
            handle = os.open("/" + self.path, os.O_RDONLY)
            try:
                there = os.fstat(handle)
                tag = f"{there.st_ino:x}-{there.st_mtime_ns:x}-{there.st_size:x}"
                data = os.pread(handle, size, offset)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._failed("read", error) from None
        TRAFFIC.add(gets=1, read=len(data))
        if if_match and tag != if_match:
            raise Changed(f"{self.url}: the file is another one now")
        if size and not data:
            raise Truncated(f"{self.url}: truncated: ends at byte {there.st_size}, {size} asked at {offset}")
        return Tagged(data, tag, there.st_size)

    async def read_tagged_async(self, offset: int, size: int, if_match: str = "") -> Tagged:
        """Up to `size` bytes from `offset` of a remote object, in one request that is never repeated: to cancel the
        call ends the request. `size` 0 asks for the tag alone. Needs no more than a running event loop.

        Raises `Changed` if the tag is not `if_match`, `Truncated` if the object has no byte at `offset`.
        """
        import obstore
        from obstore.exceptions import PreconditionError

        store = self.store if self.root.startswith("memory://") else open_store(self.root, once=True)
        options: dict[str, Any] = {"range": (offset, offset + size)} if size else {"head": True}
        if if_match:
            options["if_match"] = if_match
        try:
            answer = await obstore.get_async(store, self.path, options=options)  # type: ignore[arg-type]
            data = await answer.bytes_async() if size else b""
        except PreconditionError:
            raise Changed(f"{self.url}: the object is another one now") from None
        except Exception as error:
            if "416 Range Not Satisfiable" in str(error):
                raise Truncated(
                    f"{self.url}: truncated: ends before byte {offset}, where {size} are asked"
                ) from None
            raise self._failed("read", error) from None
        TRAFFIC.add(gets=1, read=len(data))
        tag = answer.meta["e_tag"] or ""
        return Tagged(data, "" if tag.startswith("W/") else tag, answer.meta["size"])

    def read_ranges(self, ranges: Iterable[tuple[str, int, int]]) -> Iterator[bytes]:
        """`size` bytes from `offset` of each object (path, offset, size) below the folder, in this order."""
        return self.at_once(lambda some: (self / some[0]).read_range(*some[1:]), ranges)

    def at_once(self, call: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """`call(item)` of each item, in this order, where calls wait for this store: if it is remote, on threads,
        up to `IN_FLIGHT` ahead of the one that is taken. So many results lie in memory."""
        if self.local:
            yield from map(call, items)
            return
        under_way: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            try:
                for item in items:
                    under_way.append(threads.submit(call, item))
                    if len(under_way) == IN_FLIGHT:
                        yield under_way.popleft().result()
                while under_way:
                    yield under_way.popleft().result()
            finally:
                threads.shutdown(cancel_futures=True)

    def open(self, buffer_size: int = 4 << 20, size: int | None = None) -> BinaryIO:
        """A seekable stream over the object; locally the operating system's own. `size`, if known, spares a request."""
        TRAFFIC.add(gets=1)
        try:
            if self.local:
                return open("/" + self.path, "rb")  # noqa: PTH123 (a `Path` takes longer than to open the file)
            if self.root.partition("://")[0] in WEB:
                return cast(BinaryIO, io.BufferedReader(self.store.open_file(self.path, size), 1 << 20))
            return cast(BinaryIO, io.BufferedReader(Reopened(self._reader(buffer_size), self._ask), 1 << 20))
        except Exception as error:
            raise self._failed("open", error) from None

    def _reader(self, buffer_size: int) -> Callable[[], Any]:
        """Opens the object as obstore does."""
        import obstore

        return lambda: obstore.open_reader(self.store, self.path, buffer_size=buffer_size)

    def write(self, data: bytes | memoryview) -> None:
        """Publish the object atomically."""
        self._ask("write", lambda: self.store.put(self.path, bytes(data)))
        TRAFFIC.add(puts=1, written=len(data))

    def write_new(self, data: bytes) -> bool:
        """Publish the object if there is none of this name; whether it did. Of several writers one does."""
        return self._conditional(data, "create")

    def write_over(self, data: bytes, tag: str) -> bool:
        """Publish the object if the present one has this tag (`Entry.tag`); whether it did. Of several writers one does."""
        if not self.local:
            try:
                condition = again(lambda: present(self.store, self.root, self.path, tag), self._repeats)
            except FileNotFoundError:
                return False
            except Exception as error:
                raise self._failed("write", error) from None
            return bool(condition) and self._conditional(data, condition)
        try:
            with Path(self.url).open("rb") as file:  # a rename has no condition: writers wait for each other
                fcntl.flock(file, fcntl.LOCK_EX)
                if self.entry().tag != tag:
                    return False
                self.store.put(self.path, data)
            return True
        except FileNotFoundError:
            return False
        except Exception as error:
            raise self._failed("write", error) from None

    def _conditional(self, data: bytes, mode: Any) -> bool:
        """`put` in this mode, with data that no other writer has; whether the condition held. A write whose answer was lost has
        happened: asked again, by us or by the store's client, it fails on its own object."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            again(lambda: self.store.put(self.path, data, mode=mode), self._repeats)
        except (AlreadyExistsError, PreconditionError):
            return not self.local and self._holds(data)
        except Exception as error:
            if isinstance(error, FileNotFoundError) and mode != "create":
                return False  # there is no object to write over
            raise self._failed("write", error) from None
        TRAFFIC.add(puts=1, written=len(data))
        return True

    def _holds(self, data: bytes) -> bool:
        """Whether the object has these bytes. Its owner may delete it meanwhile."""
        try:
            return self.read() == data
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def create(self) -> Iterator[IO[bytes]]:
        """A stream to write the object through; it appears, whole, when the block ends without an error.

        Locally the bytes go to a temporary name, on an object store into a multipart upload of parts of `PART`
        bytes, `PARTS` of them under way at once: so much lies in memory, however large the object is, and an object
        holds at most 10,000 parts. What a killed writer had sent stays invisible; a rule of the bucket that aborts
        incomplete uploads after some days frees its space.
        """
        import obstore

        try:
            writer = obstore.open_writer(self.store, self.path, buffer_size=PART, max_concurrency=PARTS)
            stream = CountedStream(writer)
            yield cast(IO[bytes], stream)
            writer.close()  # a writer that is dropped without it leaves nothing
            TRAFFIC.add_upload(stream.size, PART)
        except (WorkError, UserError, Missing):  # of what was read in the block, it may be
            raise
        except Exception as error:
            raise self._failed("write", error) from None

    def exists(self) -> bool:
        TRAFFIC.add(gets=1)
        try:
            self._ask("look up", lambda: self.store.head(self.path))
        except FileNotFoundError:
            return False
        return True

    def entry(self) -> Entry:
        """Size and change tag of the object itself."""
        TRAFFIC.add(gets=1)
        meta = self._ask("look up", lambda: self.store.head(self.path))
        return Entry(self.name, meta["size"], meta["e_tag"] or str(meta["last_modified"]))

    def list(self) -> Iterator[Entry]:
        """Every object below the folder, sorted by path; locally without unfinished temporary files (`name#1`)."""
        prefix = f"{self.path}/" if self.path else ""
        found = []
        try:
            batches = self._ask("list", lambda: list(self.store.list(prefix or None)))
        except FileNotFoundError:
            return iter(())
        for batch in batches:
            for meta in batch:
                name = meta["path"][len(prefix) :]
                if not self.local or not name.rsplit("#", 1)[-1].isdigit() or "#" not in name:
                    found.append(Entry(name, meta["size"], meta["e_tag"] or str(meta["last_modified"])))
        TRAFFIC.add_listing(len(found))
        return iter(sorted(found))

    def sweep(self, of: Collection[str] | None = None) -> None:
        """Delete what killed local writers had begun: `name#1` and the like, which `list` leaves out; all, or
        those of the objects `of`."""
        if not self.local:
            return
        for place, _, names in os.walk(self.url):
            for name in names:
                head, _, number = name.rpartition("#")
                if (
                    number.isdigit()
                    and head
                    and (of is None or os.path.relpath(f"{place}/{head}", self.url) in of)
                ):
                    (Path(place) / name).unlink(missing_ok=True)

    def delete(self, paths: Sequence[str] | None = None) -> None:
        """Delete these objects below the folder, or all of them."""
        names = [entry.path for entry in self.list()] if paths is None else paths
        prefix = f"{self.path}/" if self.path else ""
        # Object stores delete many at once; files go one by one.
        batches = [[prefix + name] for name in names] if self.local else [[prefix + name for name in names]]
        for batch in filter(None, batches):
            self._ask("delete", partial(delete, self.store, batch))
        if self.local:  # a store has no empty folders: nor do we leave any behind
            emptied = {up for name in names for up in (self / name).above(self)}
            everywhere = (folder for folder, _, _ in os.walk(self.url, topdown=False))
            for folder in everywhere if paths is None else sorted(emptied, key=len, reverse=True):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()

    def above(self, top: Folder) -> Iterator[str]:
        """The URLs of the folders that this is in, up to `top`."""
        up = self
        while up.path != top.path and up.path:
            up = up.parent
            yield up.url
