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


def test_a_section_counts_until_its_sources_change(tmp_path: Path) -> None:
    source, file = tmp_path / "train/a.py", tmp_path / "unfinished.json"
    (tmp_path / "bench").mkdir()
    source.parent.mkdir()
    source.write_text("1")
    texts = {
        "a": "from bench import _b, c", "_b": 'run("-m", "bench._d")', "c": "", "_d": "import bench.a", "e": "from bench.c import f",
        "g": "",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / f"bench/{name}.py").write_text(text)

    def found() -> set[str]:
        return set(Unfinished(["a", "e", "g"], file, tmp_path).sections)

    for name in ("a", "e", "g"):
        Unfinished(["a", "e", "g"], file, tmp_path).add(name, f"## {name}\n")
    assert Unfinished(["a", "e"], file, tmp_path).sections == {"a": "## a\n", "e": "## e\n"}
    (tmp_path / "bench/RESULTS.md").write_text("of a bench")
    assert found() == {"a", "e", "g"}
    for changed, left in (("_d", {"e", "g"}), ("c", {"g"}), ("e", {"a", "g"}), ("g", {"a", "e"})):
        path = tmp_path / f"bench/{changed}.py"
        path.write_text(texts[changed] + "\n")
        assert found() == left, changed
        path.write_text(texts[changed])
    source.write_text("2")
    assert not found()
    source.write_text("1")
    (tmp_path / "constraints.txt").write_text("numba==1")
    assert not found()
    (tmp_path / "constraints.txt").unlink()
    assert found() == {"a", "e", "g"}
    file.write_text(file.read_text()[:-9])
    assert not found()
