"""The command line of dedup in this process, and an index to break."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import corpusmill.__main__ as cli
from tests.conftest import shared
from tests.e2e.cli import corpusmill, difference, published
from tests.pipeline.dedup.helpers import edited, words

Main = Callable[..., tuple[int, str]]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Main:
    """The command line in this process: (exit code, its stderr)."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["corpusmill", *map(str, arguments)])
        capsys.readouterr()
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        return (code if isinstance(code, int) else 0), capsys.readouterr().err

    return run


def write_crawls(folder: Path) -> None:
    """`a.jsonl` and `b.jsonl`: families of near-copies and copies, in both."""
    generator = random.Random(50)
    texts = []
    for _ in range(40):
        text = " ".join(words(generator, generator.randint(20, 120)))
        texts += [edited(generator, text, generator.randint(0, 3)) for _ in range(generator.randint(1, 5))]
    generator.shuffle(texts)
    half = len(texts) // 2
    for name, mine in (("a", texts[:half]), ("b", texts[half:])):
        lines = [json.dumps({"id": f"{name}{i}", "text": text}) for i, text in enumerate(mine)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def adding(folder: Path, name: str, index: Path, out: Path) -> list[str]:
    return [
        "dedup", str(folder / f"{name}.jsonl"), str(out), "--index", str(index), "--id-column", "id",
        "--workers", "0", "--quiet", "--set", "ingest.partition_mb=0.03",
    ]  # fmt: skip


def taking(file: Path, index: Path, out: Path) -> list[str]:
    return [
        "dedup", str(out), "--index", str(index), "--takedown", str(file), "--workers", "0", "--quiet",
    ]  # fmt: skip


@pytest.fixture(scope="session")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a.jsonl`, `b.jsonl`; `index`: with the first added; `both`: with both; `list`: documents of both, `empty` and
    `unknown`: of none; what
    came of the second addition in `second`, of the takedown of the list in `down`."""
    return shared(tmp_path_factory, "faults-crawls", make_crawls)


def make_crawls(folder: Path) -> None:
    write_crawls(folder)
    corpusmill(*adding(folder, "a", folder / "index", folder / "first"))
    shutil.copytree(folder / "index", folder / "both")
    corpusmill(*adding(folder, "b", folder / "both", folder / "second"))
    (folder / "list").write_text("".join(f"{name}{i}\n" for name in "ab" for i in range(0, 40, 4)))
    shutil.copytree(folder / "both", folder / "less")
    corpusmill(*taking(folder / "list", folder / "less", folder / "down"))
    (folder / "empty").write_text("# nobody\n\n")
    (folder / "unknown").write_text("somebody\nelse\n")


def other(one: Path, two: Path) -> list[str]:
    """Published files that are not the same; `run.json` names the index, which lies elsewhere."""
    return [name for name in difference(published(one), published(two)) if name != "run.json"]


def one_line(error: str, *message: str) -> None:
    """One line, without a traceback, that contains these parts."""
    assert error.startswith("error: ") and error.count("\n") == 1, error
    for part in message:
        assert part in error, error
