"""safetensors files, written as a stream and read by ranges of bytes: neither holds a whole file in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import PublishedFile

CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
DTYPES = {code: dtype for dtype, code in CODES.items()}
AT_ONCE = 8 << 20  # bytes read, written or hashed in one go


class Content(NamedTuple):
    """A tensor of a file; `data` yields its bytes in row-major order when they are written."""

    key: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    data: Callable[[], Iterable[memoryview]]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write_file(file: Folder, contents: list[Content]) -> tuple[PublishedFile, dict[str, int]]:
    """Publish a file of these tensors; returns its description, and the position of each tensor's first byte. Wider types
    come first, so that each tensor is aligned to its type."""
    from xxhash import xxh3_128

    contents = sorted(contents, key=lambda c: -c.dtype.itemsize)
    ends = list(accumulate((c.bytes for c in contents), initial=0))
    header = {
        c.key: {"dtype": CODES[c.dtype], "shape": c.shape, "data_offsets": (at, at + c.bytes)}
        for c, at in zip(contents, ends, strict=False)
    }
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    head = len(head).to_bytes(8, "little") + head
    digest = xxh3_128(head)
    with file.create() as out:
        out.write(head)
        for content in contents:
            for part in content.data():
                digest.update(part)
                out.write(part)
    places = {c.key: len(head) + at for c, at in zip(contents, ends, strict=False)}
    return PublishedFile(path=file.name, bytes=len(head) + ends[-1], xxh3=digest.hexdigest()), places


def raw(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor on any device, in parts."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    for start in range(0, len(flat), AT_ONCE):
        yield flat[start : start + AT_ONCE].numpy().data


def hash_file(folder: Folder, name: str, size: int) -> str:
    """xxh3_128 (hex) of an object of this size; raises `Missing` or `Truncated`."""
    from xxhash import xxh3_128

    digest = xxh3_128()
    starts = range(0, size, AT_ONCE)
    for part in folder.read_ranges((name, start, min(AT_ONCE, size - start)) for start in starts):
        digest.update(part)
    return digest.hexdigest()


class Slab(NamedTuple):
    """A part of a box: its target in the tensor to fill, and the span of bytes that contains it."""

    target: Tensor
    name: str
    at: int  # byte in the file
    bytes: int
    strides: tuple[int, ...]  # elements, in the file


def slabs(
    target: Tensor, name: str, at: int, sizes: tuple[int, ...], start: tuple[int, ...], dtype: torch.dtype
) -> Iterator[Slab]:
    """What to read to fill `target` with the part at `start` of a tensor of `sizes` that begins at byte `at` of a file.

    In spans of at most `AT_ONCE` bytes, cut along the first dimensions: bytes between the wanted columns of a matrix are
    read too, those between wanted rows only within such a span.
    """
    strides = tuple(math.prod(sizes[dim + 1 :]) for dim in range(len(sizes)))
    count = 1 + sum((size - 1) * stride for size, stride in zip(target.shape, strides, strict=True))
    dim = next((dim for dim, size in enumerate(target.shape) if size > 1), None)
    if dim is None or count * dtype.itemsize <= AT_ONCE:
        skipped = sum(place * stride for place, stride in zip(start, strides, strict=True))
        yield Slab(target, name, at + skipped * dtype.itemsize, count * dtype.itemsize, strides)
        return
    middle = target.shape[dim] // 2
    below = (*start[:dim], start[dim] + middle, *start[dim + 1 :])
    yield from slabs(target.narrow(dim, 0, middle), name, at, sizes, start, dtype)
    yield from slabs(target.narrow(dim, middle, target.shape[dim] - middle), name, at, sizes, below, dtype)


def fill(folder: Folder, wanted: list[tuple[Slab, torch.dtype]]) -> None:
    """Read every slab into its place."""
    found = folder.read_ranges((slab.name, slab.at, slab.bytes) for slab, _ in wanted)
    for data, (slab, dtype) in zip(found, wanted, strict=True):
        flat = torch.frombuffer(bytearray(data), dtype=dtype)
        slab.target.copy_(flat.as_strided(slab.target.shape, slab.strides))
