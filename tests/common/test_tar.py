"""The tar writer against `tarfile` and `numpy.save`."""

from __future__ import annotations

import hashlib
import io
import tarfile

import numpy as np

from corpusmill.common.ids import checksum
from corpusmill.common.tar import TarWriter, npy


def test_the_writer_makes_what_tarfile_makes() -> None:
    sink, theirs = io.BytesIO(), io.BytesIO()
    ours = TarWriter(sink)
    with tarfile.open(fileobj=theirs, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in (("a.bin", b""), ("b.bin", b"x" * 512), ("c.bin", b"y" * 9000)):
            ours.begin_sample()
            member = ours.add(name, data[:100], memoryview(data)[100:])
            assert (member.size, member.xxh3) == (len(data), checksum(data))
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        end = tar.offset
    assert np.frombuffer(ours.finish(), "<u8").tolist() == [0, 512, 1536, end]
    assert sink.getvalue() == theirs.getvalue()
    assert (ours.sha256, ours.xxh3) == (
        hashlib.sha256(sink.getvalue()).hexdigest(), checksum(sink.getvalue())
    )  # fmt: skip


def test_npy_is_numpys() -> None:
    for array in (np.arange(7, dtype=np.uint16), np.zeros(0, np.uint32), np.arange(3, dtype=">u4")):
        header, data = npy(array)
        expected = io.BytesIO()
        np.save(expected, array.astype(array.dtype.newbyteorder("<")))
        assert header + bytes(data) == expected.getvalue() and len(data) == array.nbytes
