"""An interrupted run of all benches is resumed, unless what it measures has changed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench._unfinished import Unfinished


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Takes the names of the benches that run: `cut` is interrupted the first time, `bad` fails."""
    found: list[str] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        name = words[2].removeprefix("from bench.").partition(" ")[0]
        found.append(name)
        if name == "cut" and found.count(name) == 1:
            raise KeyboardInterrupt
        code = int(name == "bad")
        return subprocess.CompletedProcess(words, code, stdout=f"{name}, run {found.count(name)}\n")

    monkeypatch.setattr(command, "machine", lambda: f"machine {len(found)}")
    monkeypatch.setattr(command, "BENCHES", ["a", "bad", "cut", "d"])
    monkeypatch.setattr(command, "FILE", tmp_path / "unfinished.json")
    monkeypatch.setattr(command, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(command.subprocess, "run", run)
    monkeypatch.setattr("sys.argv", ["bench"])
    return found


def test_an_interrupted_run_is_resumed(ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        command.main()
    assert ran == ["a", "bad", "cut"] and not command.RESULTS.exists()
    with pytest.raises(SystemExit, match="failed: bad"):
        command.main()
    assert "measured already: a (to start again, delete" in capsys.readouterr().err
    assert ran[3:] == ["bad", "cut", "d"]  # what failed runs again
    text = command.RESULTS.read_text()
    assert [text.count(f"\n## {name}\n") for name in command.BENCHES] == [1, 1, 1, 1]
    assert "), on: machine 1\n\na, run 1" in text and "), on: machine 6\n\nd, run 1" in text
    assert "**failed** with exit code 1\n\nbad, run 2" in text
    assert command.FILE.exists()  # for the one that failed
    command.BENCHES.remove("bad")
    command.main()
    assert len(ran) == 6 and not command.FILE.exists()


def test_sections_are_replaced_and_the_others_stay(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command.RESULTS.write_text("# Measured\n\n## a\n\nold\n\n## bad\n\nkept\n")
    monkeypatch.setattr("sys.argv", ["bench", "d", "a", "--write"])
    command.main()
    text = command.RESULTS.read_text()
    assert [part.partition("\n")[0] for part in text.split("\n\n## ")] == ["# Measured", "a", "bad", "d"]
    assert "), on: machine 2\n\na, run 1\n" in text and "old" not in text and "\n\nkept\n" in text
    assert ran == ["d", "a"] and not command.FILE.exists()


def test_other_sources_start_again(tmp_path: Path) -> None:
    source, file = tmp_path / "train/a.py", tmp_path / "unfinished.json"
    source.parent.mkdir()
    source.write_text("1")
    (tmp_path / "bench").mkdir()
    Unfinished.found(file, tmp_path).add("a", "## a\n", file)
    assert Unfinished.found(file, tmp_path).sections == {"a": "## a\n"}
    (tmp_path / "bench/RESULTS.md").write_text("of a bench")
    assert Unfinished.found(file, tmp_path).sections
    source.write_text("2")
    assert not Unfinished.found(file, tmp_path).sections
    source.write_text("1")
    (tmp_path / "constraints.txt").write_text("numba==1")
    assert not Unfinished.found(file, tmp_path).sections
    (tmp_path / "constraints.txt").unlink()
    assert Unfinished.found(file, tmp_path).sections
    file.write_text(file.read_text()[:-9])
    assert not Unfinished.found(file, tmp_path).sections
