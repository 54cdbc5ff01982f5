"""JSONL files that a user gives: an object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder


def read_jsonl(
    file: str | Path, *texts: str, optional: Sequence[str] = (), option: str = ""
) -> Iterator[dict[str, Any]]:
    """The objects of a file, a path or URL; lines of white space are skipped. `option`: what the user named it with, for messages.

    Raises `UserError` for a file that is missing or not UTF-8, and naming the line that is no object, lacks one of the `texts`, or has
    an `optional` one that is no text.
    """
    where = f"{option} {file}".lstrip()
    try:
        # Not `splitlines`: a text may hold other separators, such as U+2028.
        lines = Folder(file).read().decode("utf-8").split("\n")
    except FileNotFoundError:
        raise not_there(Folder(file), where) from None
    except UnicodeDecodeError:
        raise UserError(f"{where}: is not UTF-8") from None
    wanted = ", ".join(f'"{name}"' for name in texts)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in texts):
            raise UserError(
                f"{where}: line {number} is not a JSON object{f' with a text {wanted}' if texts else ''}"
            )
        for name in optional:
            if not isinstance(row.get(name, ""), str):
                raise UserError(f"{where}: line {number}: {name} is not a text")
        yield row


def not_there(file: Folder, where: str) -> UserError:
    """For a file that cannot be read since there is none, or a folder in its place, which holds some."""
    place = Path(file.url)
    held = (
        sorted(one.name for one in place.iterdir() if one.is_file()) if file.local and place.is_dir() else []
    )
    if not held:
        return UserError(f"{where}: no such file")
    more = f" and {len(held) - 3} more" if len(held) > 3 else ""
    return UserError(f"{where}: is a folder; name a file in it ({', '.join(held[:3])}{more})")
