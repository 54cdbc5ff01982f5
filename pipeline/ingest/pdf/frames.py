"""What ingest and its PDF process send each other over pipes: frames of a length (4 bytes, big-endian) and that many bytes.

A message is one frame of JSON. The bytes of a file follow its `open` message as frames of data, and an empty one.
"""

from __future__ import annotations

import json
from typing import IO, Any

MAX_FRAME = 1 << 28


def write_frame(out: IO[bytes], data: bytes) -> None:
    """Write one frame; it is on its way only after a flush."""
    out.write(len(data).to_bytes(4, "big"))
    out.write(data)


def read_frame(source: IO[bytes]) -> bytes | None:
    """The next frame; None at the end, or where a frame is cut off or longer than any of ours."""
    head = source.read(4)
    size = int.from_bytes(head, "big")
    if len(head) < 4 or size > MAX_FRAME:
        return None
    data = source.read(size)
    return data if len(data) == size else None


def write_message(out: IO[bytes], message: dict[str, Any]) -> None:
    """Write a message and send it."""
    write_frame(out, json.dumps(message).encode())
    out.flush()


def read_message(source: IO[bytes]) -> dict[str, Any] | None:
    """The next message; None at the end, or for a frame that is none."""
    data = read_frame(source)
    try:
        message = json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
