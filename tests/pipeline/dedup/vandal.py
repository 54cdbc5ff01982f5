"""Runs that are killed again and again, and files that are damaged between runs or during one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

from corpusmill.common.storage import Folder
from tests.conftest import Serial

T = TypeVar("T")
DAMAGES = ("delete", "truncate", "flip")


class Kill(BaseException):
    """Stands for SIGKILL: nothing catches it."""


class Dying(Serial):
    """Dies before the task of a given number."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self.left = tasks

    def map(self, function: Any, items: Any, label: str, sizes: Any = None) -> list[Any]:
        def mortal(item: Any) -> Any:
            if self.left == 0:
                raise Kill
            self.left -= 1
            return function(item)

        return super().map(mortal, items, label, sizes)


class Mortal:
    """Dies before the change of a file of a given number, `left`, counted over writes and deletions; lives on
    if that is negative. `done` counts them all, and `before` is called with the file before each. Files of the test's own,
    below `spared`, do not count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spared: Folder | None = None) -> None:
        self.left, self.done = -1, 0
        self.before: Callable[[Folder], None] = lambda file: None
        write, create, delete = Folder.write, Folder.create, Folder.delete

        def wrapped(real: Any) -> Any:
            def change(folder: Folder, *given: Any) -> Any:
                if spared is None or not folder.url.startswith(f"{spared.url}/"):
                    if self.left == 0:
                        raise Kill
                    self.before(folder)
                    self.left -= 1
                    self.done += 1
                return real(folder, *given)

            return change

        monkeypatch.setattr(Folder, "write", wrapped(write))
        monkeypatch.setattr(Folder, "create", wrapped(create))
        monkeypatch.setattr(Folder, "delete", wrapped(delete))

    def living(self, attempt: Callable[[], T]) -> Callable[[int], T]:
        """`attempt`, with so many changes of files to live."""

        def run(changes: int) -> T:
            self.left = changes
            return attempt()

        return run


def until_it_lives(attempt: Callable[[int], T], lives: Iterable[int]) -> tuple[T, int]:
    """`attempt(life)` for one life after the other: (what the first gives that is not killed, the kills before
    it)."""
    for kills, life in enumerate(lives):
        try:
            return attempt(life), kills
        except Kill:
            continue
    raise AssertionError("killed in every life")


def refuse(*_: Any) -> Any:
    """In place of a step that was done before, and must not be done again."""
    raise AssertionError("done before")


def contents(folder: Folder) -> dict[str, bytes]:
    """Every file below the folder."""
    return {entry.path: (folder / entry.path).read() for entry in folder.list()}


def damage(folder: Folder, path: str, kind: str, generator: random.Random) -> None:
    """Delete a file, cut it in half, or flip a bit of it anywhere; an empty one can only be deleted."""
    data = bytearray((folder / path).read())
    if kind == "delete" or not data:
        folder.delete([path])
    elif kind == "truncate":
        (folder / path).write(bytes(data[: len(data) // 2]))
    else:
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        (folder / path).write(bytes(data))


def damage_some(folder: Folder, count: int, seed: int) -> None:
    """Damage `count` files below the folder, each in some way."""
    generator = random.Random(seed)
    for path in generator.sample([entry.path for entry in folder.list()], count):
        damage(folder, path, generator.choice(DAMAGES), generator)


class Vandal(Serial):
    """Flips a bit in the middle of a file as soon as the step that wrote it is over."""

    def __init__(self, file: Folder, step: str) -> None:
        super().__init__()
        self.file, self.step = file, step

    def map(self, function: Any, items: Any, label: str, sizes: Any = None) -> list[Any]:
        results = super().map(function, items, label, sizes)
        if label == self.step:
            data = bytearray(self.file.read())
            data[len(data) // 2] ^= 1
            self.file.write(bytes(data))
            self.step = ""
        return results
