"""Reading what may be damaged: whatever bytes lie there, and whatever lies in place of a file, makes a line and no exception."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder

LARGEST_JSON = 1 << 30  # bytes of a manifest or list: a larger file in its place is not read


@contextmanager
def reported(problems: list[str], where: object) -> Iterator[None]:
    """Add a line to `problems` for whatever stops the block, and go on after it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except FileNotFoundError as error:
        problems.append(str(error) if str(where) in str(error) else f"{where}: missing")
    except (WorkError, UserError) as error:
        problems.append(str(error) if str(where) in str(error) else f"{where}: {error}")
    except OSError as error:
        problems.append(f"{where}: cannot be read: {error.strerror or error}")
    except BaseException as error:  # a panic of a Rust library is no Exception
        lines = str(error).splitlines()
        problems.append(f"{where}: cannot be checked: {type(error).__name__}: {lines[0] if lines else ''}")


def require_file(file: Folder) -> int | None:
    """The bytes of a local file; None of an object of a store. Raises `WorkError` if there is none, or something else in its
    place, such as a pipe, a read of which may never end."""
    if not file.local:
        return None
    try:
        found = Path(file.url).stat()
    except (FileNotFoundError, NotADirectoryError):
        raise WorkError(f"{file}: missing") from None
    if not stat.S_ISREG(found.st_mode):
        raise WorkError(f"{file}: missing: what is there is no file")
    return found.st_size


def read_regular(file: Folder, size: int | None = None) -> bytes:
    """The bytes of a published file of this size, or of a manifest of any; raises `WorkError` if it is not that, if possible
    before it is read."""
    there = require_file(file)
    if size is None and there is not None and there > LARGEST_JSON:
        raise WorkError(f"{file}: {there} bytes: no manifest is as large")
    if size is not None and there not in (None, size):
        raise WorkError(f"{file}: {there} bytes, published with {size}")
    try:
        data = Path(file.url).read_bytes() if file.local else file.read()
    except FileNotFoundError:
        raise WorkError(f"{file}: missing") from None
    if size not in (None, len(data)):
        raise WorkError(f"{file}: {len(data)} bytes, published with {size}")
    return data


def is_there(file: Folder) -> bool:
    """Whether anything has this name, found without opening it."""
    return os.path.lexists(file.url) if file.local else file.exists()


def read_present(file: Folder) -> bytes:
    """`read_regular` of a file that may be missing; raises `FileNotFoundError` then."""
    if not is_there(file):
        raise FileNotFoundError(f"{file}: not found")
    return read_regular(file)
