"""Stored tables: computed once for a machine, equal when read, made again when damaged or when what they depend on changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from corpusmill.common import stored_tables
from corpusmill.common.stored_tables import stored
from corpusmill.pipeline.text import unicode_tables

calls: list[int] = []


def squares(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    calls.append(count)
    return np.arange(count) ** 2


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], Callable[[int], object]]:
    """Another process, as far as the table knows."""
    monkeypatch.setenv("CORPUSMILL_KERNEL_CACHE", str(tmp_path / "cache"))
    calls.clear()
    return lambda: stored(packages=("numpy",))(squares)


def test_a_table_is_computed_once(fresh: Callable[[], Callable[[int], object]], tmp_path: Path) -> None:
    for _ in range(3):
        for count in (3, 50):
            table = fresh()(count)
            assert type(table) is np.ndarray and not table.flags.writeable
            assert table.tolist() == [n * n for n in range(count)]
    assert calls == [3, 50]
    assert len(list(tmp_path.rglob("*.npy"))) == 2 and not list(tmp_path.rglob("*.part"))


def test_what_is_damaged_is_made_again(fresh: Callable[[], Callable[[int], object]], tmp_path: Path) -> None:
    fresh()(50)
    (file,) = tmp_path.rglob("*.npy")
    whole = file.read_bytes()
    for damaged in (b"", whole[:20], whole[:-8], b"{}"):
        file.write_bytes(damaged)
        assert fresh()(50).tolist() == [n * n for n in range(50)]  # type: ignore[attr-defined]
        assert file.read_bytes() == whole
    assert calls == [50] * 5


def test_another_version_is_another_table(
    fresh: Callable[[], Callable[[int], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh()(5)
    monkeypatch.setattr(stored_tables, "version", lambda name: "999")
    fresh()(5)
    assert calls == [5, 5]


def test_without_a_folder_it_is_computed(
    fresh: Callable[[], Callable[[int], object]], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("in the way")
    for _ in range(2):
        assert fresh()(4).tolist() == [0, 1, 4, 9]  # type: ignore[attr-defined]
    assert calls == [4, 4]


def test_tables_of_unicode_are_read_as_they_are_computed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CORPUSMILL_KERNEL_CACHE", str(tmp_path))
    for make in (unicode_tables.class_table, unicode_tables.lower_table):
        again = stored()(make.__wrapped__.__wrapped__)  # type: ignore[attr-defined]
        computed = again()
        read = stored()(make.__wrapped__.__wrapped__)()  # type: ignore[attr-defined]
        assert computed.dtype == read.dtype and (computed == read).all()
