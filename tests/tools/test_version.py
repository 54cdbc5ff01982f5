"""The version is that of the tags: a release at its tag, a development version after it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from packaging.version import Version

from tools.version import BASE, version


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "commit", "--allow-empty", "-m", "work")


def test_it_grows_with_tags_and_commits(tmp_path: Path) -> None:
    assert version(tmp_path) == BASE  # no repository, as in a source archive
    git(tmp_path, "init")
    commit(tmp_path)
    assert version(tmp_path) == BASE
    git(tmp_path, "tag", "v0.2.0")
    assert version(tmp_path) == "0.2.0"
    commit(tmp_path)
    after = version(tmp_path)
    assert after.startswith("0.2.1.dev1+g")
    commit(tmp_path)
    git(tmp_path, "tag", "latest")
    assert Version("0.2.0") < Version(after) < Version(version(tmp_path)) < Version("0.2.1")


def test_tags_of_a_folder_above_do_not_count(tmp_path: Path) -> None:
    git(tmp_path, "init")
    commit(tmp_path)
    git(tmp_path, "tag", "v9.0.0")
    (tmp_path / "unpacked").mkdir()
    assert version(tmp_path / "unpacked") == BASE
