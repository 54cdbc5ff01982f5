"""The wheel in an environment of its own, in a folder whose files have the names of the packages' folders."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TRAP = "raise SystemExit('a file of the user was imported')\n"
IMPORT = re.compile(r"^(?:    )?((?:from|import) corpusmill[^\n]*)", re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Installed:
    """An environment that holds the wheel, and a user's folder to work in."""

    def __init__(self, place: Path) -> None:
        self.wheel = _wheel(place / "dist")
        venv.create(place / "venv", with_pip=True)
        self.python = place / "venv/bin/python"
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, self.wheel], check=True)
        # Its dependencies are borrowed: as a plain entry of the path, whose own .pth files are not read.
        paths = sysconfig.get_paths(vars={"base": str(place / "venv"), "platbase": str(place / "venv")})
        Path(paths["purelib"], "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        self.folder = place / "work"
        for name in (
            "train.py",
            "schemas.py",
            "common.py",
            "pipeline/__init__.py",
            "configs/__init__.py",
            "tests/__init__.py",
        ):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(TRAP)

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """A command of the environment in the user's folder; it must succeed."""
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        env |= {
            "PATH": f"{self.python.parent}{os.pathsep}{env['PATH']}",
            "COLUMNS": "80",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [str(part) for part in command], cwd=self.folder, env=env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done


def _wheel(folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        ROOT,
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("corpusmill-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_one_name_is_put_on_the_import_path(installed: Installed) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(installed.wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"corpusmill"}
    code = "import corpusmill, pathlib, sys; print(pathlib.Path(corpusmill.__file__).parents[3] == pathlib.Path(sys.prefix, 'lib'))"
    assert installed.run("python", "-c", code).stdout == "True\n"


def test_the_wheel_holds_every_file_of_the_packages(installed: Installed) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "common", "schemas", "pipeline", "train", "configs"], cwd=ROOT, capture_output=True,
        text=True, check=True,
    ).stdout.split()  # fmt: skip
    held = set(zipfile.ZipFile(installed.wheel).namelist())
    assert [name for name in tracked if f"corpusmill/{name}" not in held] == []


def test_every_import_of_the_docs_works_beside_files_of_the_same_names(installed: Installed) -> None:
    found = {line for page in PAGES for line in IMPORT.findall(page.read_text(encoding="utf-8"))}
    assert any("StreamingTokens" in line for line in found)
    installed.run("python", "-c", "\n".join(sorted(found)))


@pytest.mark.parametrize(
    "command", ["corpusmill --help", "python -m corpusmill --version", "python -m corpusmill.train --help",
                "torchrun --standalone --nproc-per-node 1 -m corpusmill.train --help"],
)  # fmt: skip
def test_commands_start(installed: Installed, command: str) -> None:
    words = command.split()
    if words[0] == "torchrun":  # whose script is in the borrowed environment
        words[:1] = ["python", "-m", "torch.distributed.run"]
    assert "corpusmill" in installed.run(*words).stdout.lower() or "CONFIG" in installed.run(*words).stdout
