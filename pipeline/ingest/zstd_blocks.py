"""How much of a Zstandard frame may be decompressed in one step, by the headers of its blocks (RFC 8878, section 3.1.1)."""

from __future__ import annotations

# A block of 4 bytes may stand for 128 KiB: 256 bytes of input give 8 MiB at most.
SLICE = 1 << 8
_MAGIC = b"\x28\xb5\x2f\xfd"
_RLE, _RESERVED = 1, 3
_ID_BYTES = (0, 1, 2, 4)
_CONTENT_BYTES = (0, 2, 4, 8)


class ZstdBlocks:
    """Follows a frame from its first byte on. Bytes within a block give no output, so all of them up to the last slice of the block can be
    passed at once: what a decoder gives, and what it has given when it finds damage, is as if each slice had been passed alone.

    Where the headers are not what they should be, and in frames that are skipped, every slice is passed alone.
    """

    def __init__(self) -> None:
        self._left = 0  # bytes of the present block that are to come
        self._head = b""  # of a header, as far as it has come
        self._needed = 6  # bytes of it; 0: no more headers are looked for
        self._in_frame_header = True

    def within(self, there: int) -> int:
        """How many of `there` bytes that are at hand to pass at once: whole slices of the present block, or one slice.

        Slices are counted from the first of the bytes at hand, as they are when each is passed alone.
        """
        return max(SLICE, min(self._left, there) // SLICE * SLICE)

    def pass_over(self, piece: bytes) -> None:
        """The bytes that were passed."""
        at = 0
        while at < len(piece) and (self._left or self._needed):
            if self._left:
                some = min(self._left, len(piece) - at)
                self._left -= some
                at += some
                continue
            some = self._needed - len(self._head)
            self._head += piece[at : at + some]
            at += min(some, len(piece) - at)
            if len(self._head) == self._needed:
                self._read_header()

    def _read_header(self) -> None:
        head = self._head
        if not self._in_frame_header:
            number = int.from_bytes(head, "little")
            last, kind, size = number & 1, number >> 1 & 3, number >> 3
            self._head = b""
            self._left = 1 if kind == _RLE else size
            if last or kind == _RESERVED:
                self._needed = 0
            if kind == _RESERVED:
                self._left = 0
        elif head[:4] != _MAGIC:
            self._needed = 0
        else:
            flags = head[4]
            single = flags >> 5 & 1
            size = 5 + (not single) + _ID_BYTES[flags & 3] + (_CONTENT_BYTES[flags >> 6] or single)
            if size > len(head):
                self._needed = size
            else:
                self._head, self._needed, self._in_frame_header = b"", 3, False
