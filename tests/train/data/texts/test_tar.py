"""The reader of tars against `tarfile`'s writer, and every damage that `tarfile` passes over."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.errors import WorkError
from corpusmill.train.data.texts.tar import Member, TarReader
from tests.train.data.texts.helpers import tar_of

THREE = [("a.txt", b"x" * 700), ("b.txt", b""), ("c.txt", b"y" * 512)]
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def read(data: bytes, size: int | None = None) -> list[Member]:
    reader = TarReader(io.BytesIO(data), len(data) if size is None else size, "x.tar")
    found = list(reader.members(lambda name, size: True))
    assert reader.position == len(data) and reader.sha256.hexdigest() == hashlib.sha256(data).hexdigest()
    return found


def one(**fields: object) -> bytes:
    """A tar of one member with these header fields."""
    info = tarfile.TarInfo("a.txt")
    for name, value in fields.items():
        setattr(info, name, value)
    return info.tobuf(format=tarfile.GNU_FORMAT) + bytes(10240)


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=150)
            .filter(lambda name: name not in (".", "..") and len(name.encode()) < 240),
            st.binary(max_size=1500),
        ),
        max_size=5,
    ),
    st.sampled_from(FORMATS[1:]),
)  # fmt: skip
def test_what_tarfile_writes_is_read(members: list[tuple[str, bytes]], format: int) -> None:
    assert read(tar_of(members, format)) == [Member(name, len(data), data) for name, data in members]


@pytest.mark.parametrize("format", FORMATS)
def test_long_names_and_folders(format: int) -> None:
    name = "/".join(["d" * 60] * 3) + "/a.txt"
    assert read(tar_of([(name, b"1")], format)) == [Member(name, 1, b"1")]
    folder = tarfile.TarInfo("some/")
    folder.type = tarfile.DIRTYPE
    assert read(folder.tobuf(format) + tar_of([("./some/a.txt", b"1")], format)) == [
        Member("./some/a.txt", 1, b"1")
    ]


def test_what_is_not_wanted_is_read_past() -> None:
    reader = TarReader(io.BytesIO(tar_of(THREE)), 10240, "x.tar")
    found = list(reader.members(lambda name, size: name.startswith("c")))
    assert found == [Member("a.txt", 700), Member("b.txt", 0), Member("c.txt", 512, b"y" * 512)]


def test_pax_headers_of_the_whole_are_read_past() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "é"}) as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
    assert read(out.getvalue()) == [Member("a.txt", 0, b"")]


def test_an_empty_tar_has_no_members() -> None:
    assert read(tar_of([])) == read(bytes(512)) == []


@pytest.mark.parametrize(
    ("end", "what"),
    [
        (0, "truncated: it ends at byte 0 without the zeros"),
        (300, "truncated: it ends inside the header at byte 0"),
        (512 + 100, "truncated: it ends inside 'a.txt'"),
        (
            512 + 1024,
            "truncated: it ends at byte 1536 without the zeros",
        ),  # tarfile: a whole tar of one member
        (512 + 1024 + 100, "truncated: it ends inside the header at byte 1536"),  # tarfile: the same
    ],
)
def test_a_truncated_tar_is_an_error(end: int, what: str) -> None:
    data = tar_of(THREE)
    with pytest.raises(WorkError, match=f"^x.tar: {what}"):
        read(data[:end], len(data))


def test_every_cut_is_noticed_by_bytes_or_size() -> None:
    data = tar_of(THREE)
    last = 512 + 1024 + 512 + 512 + 512
    for end in range(0, last + 512, 16):
        with pytest.raises(WorkError, match="truncated"):
            read(data[:end], len(data))


@pytest.mark.parametrize("header", [0, 1536, 2048])
def test_a_zeroed_header_is_an_error(header: int) -> None:
    data = bytearray(tar_of(THREE))
    data[header : header + 512] = bytes(512)
    with pytest.raises(WorkError, match=f"zeros at byte {header} where a header should be"):
        read(bytes(data))


@pytest.mark.parametrize("place", range(0, 512, 37))
def test_a_flipped_byte_of_a_header_is_an_error(place: int) -> None:
    data = bytearray(tar_of(THREE))
    data[1536 + place] ^= 1
    with pytest.raises(WorkError, match="header at byte 1536 is damaged"):
        read(bytes(data))


def test_no_tar_at_all() -> None:
    with pytest.raises(WorkError, match=r"x.tar: no tar"):
        read(b"text" * 1000)
    with pytest.raises(WorkError, match="x.tar: a compressed file: unpack it first"):
        read(b"\x1f\x8b" + b"." * 1000)


@pytest.mark.parametrize("size", [2**40, 20_000, -512])
def test_a_size_that_does_not_fit_is_an_error(size: int) -> None:
    with pytest.raises(WorkError, match=f"'a.txt': {size} bytes do not fit in a tar of 10752"):
        read(one(size=size))


@pytest.mark.parametrize("name", ["/etc/passwd", "../a.txt", "a/../../b.txt"])
def test_names_that_leave_are_refused(name: str) -> None:
    with pytest.raises(WorkError, match=r"absolute names, '\.\.' and NUL are refused"):
        read(tar_of([(name, b"1")]))


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "a symbolic link"), (tarfile.LNKTYPE, "a hard link"), (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.CHRTYPE, "a device"), (tarfile.GNUTYPE_SPARSE, "a sparse file"), (b"V", "of type b'V'"),
    ],
)  # fmt: skip
def test_what_is_no_file_is_refused(kind: bytes, what: str) -> None:
    with pytest.raises(WorkError, match=f"member 'a.txt' is {what}; only regular files are read"):
        read(one(type=kind, linkname="b"))


def pax(records: bytes) -> bytes:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    return info.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % 512) + one()


def record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = next(n for n in range(len(body), len(body) + 9) if n == len(str(n)) + len(body))
    return str(length).encode() + body


def test_a_pax_header_names_the_next_member() -> None:
    assert read(pax(record(b"path", b"b.txt") + record(b"size", b"9"))) == [Member("b.txt", 9, bytes(9))]


@pytest.mark.parametrize(
    ("records", "what"),
    [
        (record(b"path", b"../a.txt"), "absolute names"),
        (record(b"path", b"a\0bc"), "NUL are refused"),
        (record(b"size", b"9" * 20), "do not fit"),
        (record(b"size", b"9" * 5000), "do not fit"),
        (record(b"size", b"-1"), "do not fit"),
        (record(b"GNU.sparse.major", b"1"), "a sparse file"),
        (b"0 path=a\n", "cannot be read"),
        (b"99 path=a\n", "cannot be read"),
        (b"8 path=a\n", "cannot be read"),
        (b"path=a\n", "cannot be read"),
    ],
)
def test_a_pax_header_cannot_smuggle(records: bytes, what: str) -> None:
    with pytest.raises(WorkError, match=what):
        read(pax(records))


def test_a_huge_pax_header_is_not_read() -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 2 << 20
    with pytest.raises(WorkError, match="pax header of 2097152 bytes"):
        read(info.tobuf(tarfile.USTAR_FORMAT) + bytes(3 << 20))


def test_a_header_for_a_next_one_at_the_end_is_an_error() -> None:
    info = tarfile.TarInfo("long")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4
    with pytest.raises(WorkError, match="belongs to a next one"):
        read(info.tobuf(tarfile.GNU_FORMAT) + b"abc\0" + bytes(508) + bytes(1024))


def test_a_disk_that_fails_is_named() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(WorkError, match="x.tar: cannot be read from byte 0 on: Input/output error"):
        list(TarReader(Failing(), 512, "x.tar").members(lambda name, size: True))
