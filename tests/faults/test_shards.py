"""Damage of published shards: every kind is named, in one line that begins with the file.

Plain readers pass over most of these in silence: a tar that ends early, a header of zeros, another tar's bytes.
"""

# ruff: noqa: F811 (fixtures come by import, and arguments have their names)
from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.shards import verify_shards
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.schemas.manifest import StageManifest
from tests.faults.shards import changed, headers, run, small, tars  # noqa: F401 (fixtures)

Expected = tuple[Path, str]  # the file that must be named, and the message
KINDS = ("web/train", "web/train-text")


def at_a_member(file: Path) -> Expected:
    names = headers(file)
    keep = names[len(names) // 2][1]
    changed(file, lambda data: data.__delitem__(slice(keep, None)))
    return file, "truncated"


def in_a_header(file: Path) -> Expected:
    keep = headers(file)[4][1] + 200
    changed(file, lambda data: data.__delitem__(slice(keep, None)))
    return file, "truncated"


def in_a_payload(file: Path) -> Expected:
    keep = headers(file)[2][1] + 520
    changed(file, lambda data: data.__delitem__(slice(keep, None)))
    return file, "truncated"


def in_the_end(file: Path) -> Expected:
    changed(file, lambda data: data.__delitem__(slice(len(data) - 700, None)))
    return file, "truncated"


def empty(file: Path) -> Expected:
    file.write_bytes(b"")
    return file, "truncated: 0 bytes"


def zeroed_header(file: Path) -> Expected:
    _, at, _ = headers(file)[3]
    changed(file, lambda data: data.__setitem__(slice(at, at + 512), bytes(512)))
    return file, "zeros, which readers take for the end of the tar"


def bad_header_sum(file: Path) -> Expected:
    _, at, _ = headers(file)[3]
    changed(file, lambda data: data.__setitem__(slice(at + 148, at + 154), b"777777"))
    return file, "its own checksum is wrong"


def trailing(file: Path) -> Expected:
    changed(file, lambda data: data.extend(b"x" * 1000))
    return file, "1000 trail"


def trailing_zeros(file: Path) -> Expected:
    changed(file, lambda data: data.extend(bytes(10240)))
    return file, "10240 trail"


def swapped_tars(file: Path) -> Expected:
    """Of which one is named here, the other below."""
    other = sorted(file.parent.glob("*.tar"))[1]
    shutil.copy(other, file)
    return file, f"holds the bytes of {other}: swapped"


def no_sidecar(file: Path) -> Expected:
    sidecar = Path(f"{file}.idx")
    sidecar.unlink()
    return sidecar, "missing"


def gone(file: Path) -> Expected:
    file.unlink()
    return file, "missing"


def padding(file: Path) -> Expected:
    name, at, size = next(one for one in headers(file) if one[2] % 512)
    changed(file, lambda data: data.__setitem__(at + 512 + size, 7))
    return file, f"{name}: the bytes after it"


DAMAGES = [
    at_a_member, in_a_header, in_a_payload, in_the_end, empty, zeroed_header, bad_header_sum, trailing, trailing_zeros,
    swapped_tars, no_sidecar, gone, padding,
]  # fmt: skip


def one_problem(run: Path, file: Path, message: str) -> None:
    """The shards by themselves and the whole run have this one problem."""
    for problems in (verify_shards(Folder(run / "shards")), verify(Folder(run)).problems):
        assert len(problems) == 1, problems
        assert problems[0].startswith(f"{file}:") and message in problems[0] and "\n" not in problems[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_a_damage_is_named_in_one_line(run: Path, kind: str, damage: Callable[[Path], Expected]) -> None:
    file, message = damage(tars(run, kind)[0])
    one_problem(run, file, message)


@pytest.mark.parametrize("kind", KINDS)
def test_tars_that_changed_places_are_both_named(run: Path, kind: str) -> None:
    one, two = tars(run, kind)[:2]
    data = one.read_bytes(), two.read_bytes()
    one.write_bytes(data[1])
    two.write_bytes(data[0])
    problems = verify(Folder(run)).problems
    assert problems == [
        f"{one}: holds the bytes of {two}: swapped",
        f"{two}: holds the bytes of {one}: swapped",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_in_each_member_names_it(run: Path, kind: str) -> None:
    file = tars(run, kind)[0]
    whole = file.read_bytes()
    for name, at, size in headers(file):
        file.write_bytes(
            whole[: at + 512 + size // 2]
            + bytes([whole[at + 512 + size // 2] ^ 1])
            + whole[at + 513 + size // 2 :]
        )
        (problem,) = verify_shards(Folder(run / "shards"))
        assert problem.startswith(f"{file}: ")
        assert name in problem or ("sha256 differs, outside" in problem and name.endswith(".json")), problem


def test_payloads_that_changed_places_are_named(run: Path) -> None:
    """Headers and sizes are right: only checksums tell."""
    file = tars(run)[0]
    first, second = [one for one in headers(file) if one[0].endswith(".tokens.npy")][:2]
    assert first[2] == second[2]
    data = file.read_bytes()
    parts = [data[at + 512 : at + 512 + size] for _, at, size in (first, second)]

    def swap(data: bytearray) -> None:
        for (_, at, size), part in zip((first, second), reversed(parts), strict=True):
            data[at + 512 : at + 512 + size] = part

    changed(file, swap)
    assert verify_shards(Folder(run / "shards")) == [
        f"{file}: {a}: payload differs: swapped, it is that of {b}"
        for a, b in ((first[0], second[0]), (second[0], first[0]))
    ]


def test_samples_in_another_order_are_named(run: Path) -> None:
    for kind, message in ((KINDS[0], "reordered"), (KINDS[1], "sha256 differs")):
        file = tars(run, kind)[0]
        members = headers(file)
        step = 3 if kind == KINDS[0] else 2
        cut, end = members[step][1], members[2 * step][1]
        changed(file, lambda data: data.__setitem__(slice(0, end), data[cut:end] + data[:cut]))  # noqa: B023
        (*_, problem) = verify_shards(Folder(run / "shards"))
        assert problem.startswith(f"{file}") and (message in problem or "offsets" in problem), problem


@pytest.mark.parametrize(
    ("one", "other"), [("web/train", "books/train"), ("web/train-text", "web/validation-text")]
)
def test_the_index_of_another_set(run: Path, one: str, other: str) -> None:
    file = run / "shards" / one / "index.json"
    shutil.copy(run / "shards" / other / "index.json", file)
    (problem,) = verify(Folder(run)).problems
    assert (
        problem.startswith(f"{file}: checksum differs")
        and f"it is that of {other.replace('/', '-')}" in problem
    )


def test_the_list_of_another_shard_set(run: Path) -> None:
    file = run / "shards/index.json"
    changed(file, lambda data: data.__setitem__(data.index(b'"ndocs": ') + 9, ord("9")))
    (problem,) = verify(Folder(run)).problems
    assert problem == f"{file}: checksum differs from the published one"


@pytest.fixture(scope="session")
def mended(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run that is broken and mended again."""
    folder = tmp_path_factory.mktemp("mended") / "run"
    shutil.copytree(small / "run", folder)
    return folder


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(1, 255))
def test_any_flipped_byte_of_any_published_file_is_found(
    mended: Path, chance: random.Random, flip: int
) -> None:
    """Of the shards' folder: whatever its manifest names."""
    manifest = StageManifest.model_validate_json((mended / "shards/manifest.json").read_bytes())
    file = mended / "shards" / chance.choice([file.path for file in manifest.files if file.bytes])
    whole = file.read_bytes()
    place = chance.randrange(len(whole))
    file.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
    try:
        problems = verify(Folder(mended), sample=0).problems
    finally:
        file.write_bytes(whole)
    assert len(problems) >= 1 and all("\n" not in problem for problem in problems)
    assert any(str(file) in problem for problem in problems), (file, place, problems)


def test_nothing_is_wrong_with_what_was_written(mended: Path) -> None:
    assert verify(Folder(mended), sample=None).problems == []
