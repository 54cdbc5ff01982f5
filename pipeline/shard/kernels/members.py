"""Documents as tar members: `<doc_id>.txt` and `<doc_id>.json`, rendered a batch at a time from Arrow's buffers.

Everything goes by cursors: `cursors[i]` is where the next byte of document i is written. A first pass of the
`..._size` functions says how many bytes there will be.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

RECORD = 512
_SIZE, _SUM = 124, 148  # where a USTAR header has its size and checksum
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHORT = np.zeros(256, np.uint8)  # the letter of a two-byte escape
for _byte, _letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    _SHORT[_byte] = _letter


@compiled
def escaped_size(offsets: Longs, data: Bytes, out: Longs) -> None:
    """Add the bytes of each string inside a JSON string to `out`."""
    for i in range(len(out)):
        size = offsets[i + 1] - offsets[i]
        for k in range(offsets[i], offsets[i + 1]):
            byte = data[k]
            if _SHORT[byte]:
                size += 1
            elif byte < 0x20:
                size += 5
        out[i] += size


@compiled
def escaped(cursors: Longs, out: Bytes, offsets: Longs, data: Bytes) -> None:
    """Write each string as it stands inside a JSON string (RFC 8259; UTF-8 stays as it is)."""
    for i in range(len(cursors)):
        at = cursors[i]
        for k in range(offsets[i], offsets[i + 1]):
            byte = data[k]
            if _SHORT[byte]:
                out[at], out[at + 1] = 0x5C, _SHORT[byte]
                at += 2
            elif byte < 0x20:
                out[at], out[at + 1], out[at + 2], out[at + 3] = 0x5C, 0x75, 0x30, 0x30
                out[at + 4], out[at + 5] = _HEX[byte >> 4], _HEX[byte & 15]
                at += 6
            else:
                out[at] = byte
                at += 1
        cursors[i] = at


@compiled
def plain(cursors: Longs, out: Bytes, offsets: Longs, data: Bytes) -> None:
    """Write each string as it is."""
    for i in range(len(cursors)):
        size = offsets[i + 1] - offsets[i]
        out[cursors[i] : cursors[i] + size] = data[offsets[i] : offsets[i + 1]]
        cursors[i] += size


@compiled
def same(cursors: Longs, out: Bytes, literal: Bytes) -> None:
    """Write `literal` for every document."""
    for i in range(len(cursors)):
        out[cursors[i] : cursors[i] + len(literal)] = literal
        cursors[i] += len(literal)


@compiled
def hexed(cursors: Longs, out: Bytes, ids: Bytes, there: npt.NDArray[np.bool_]) -> None:
    """Write each row of `ids` (n x 16) as 32 hexadecimal digits; nothing where `there` is false."""
    for i in range(len(cursors)):
        if there[i]:
            at = cursors[i]
            for k in range(ids.shape[1]):
                out[at + 2 * k], out[at + 2 * k + 1] = _HEX[ids[i, k] >> 4], _HEX[ids[i, k] & 15]
            cursors[i] = at + 2 * ids.shape[1]


@compiled
def headers(cursors: Longs, out: Bytes, template: Bytes, ids: Bytes, sizes: Longs) -> None:
    """Write a USTAR header each: `template` (512 bytes, of a member of 32 letters and an extension, of size 0), its
    name begun by the id in hex, with the size and the checksum that belong to it."""
    for i in range(len(cursors)):
        at = cursors[i]
        out[at : at + RECORD] = template
        for k in range(ids.shape[1]):
            out[at + 2 * k], out[at + 2 * k + 1] = _HEX[ids[i, k] >> 4], _HEX[ids[i, k] & 15]
        rest = sizes[i]
        for k in range(11):  # octal digits and a NUL
            out[at + _SIZE + 10 - k] = 0x30 + (rest & 7)
            rest >>= 3
        out[at + _SUM : at + _SUM + 8] = 0x20  # what the checksum counts in its own place
        total = np.int64(0)
        for k in range(RECORD):
            total += out[at + k]
        for k in range(6):  # six octal digits, a NUL, a space
            out[at + _SUM + 5 - k] = 0x30 + (total & 7)
            total >>= 3
        out[at + _SUM + 6] = 0
        cursors[i] = at + RECORD
