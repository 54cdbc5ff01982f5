"""A peer that cannot be had is a line in a table, never a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import peers


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(peers, "CACHE", tmp_path / "peers")
    peers.environment.cache_clear()
    peers.packages.cache_clear()
    return tmp_path / "peers"


def test_no_index_in_reach(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(peers.NotMeasured, match="package index cannot be reached"):
        peers.environment("nobody", ("no-such-package-of-corpusmill==1.0",))
    assert [file.name for file in cache.iterdir()] == [".gitignore"]


def test_a_script_that_fails_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SCRIPTS", tmp_path)
    (tmp_path / "bad.py").write_text("raise SystemExit('it broke')")
    (tmp_path / "good.py").write_text("import sys; print('noise'); print([int(sys.argv[1])])")
    with pytest.raises(peers.NotMeasured, match="it broke"):
        peers.ask(peers.Peer("bad", (), "bad.py"))
    assert peers.ask(peers.Peer("good", (), "good.py"), "3") == [3]


def test_packages_on_top_of_ours_are_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[str]] = []

    def install(command: list[str]) -> None:
        made.append(command)
        Path(command[command.index("--target") + 1]).mkdir()

    monkeypatch.setattr(peers, "_command", install)
    folder = peers.packages("some", ("one==1.0",))
    peers.packages.cache_clear()
    assert folder.is_dir() and peers.packages("some", ("one==1.0",)) == folder and len(made) == 1
    assert {"--no-deps", "one==1.0"} <= set(made[0])
    assert sorted(file.name for file in cache.iterdir()) == [".gitignore", folder.name]
