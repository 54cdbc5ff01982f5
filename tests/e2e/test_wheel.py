"""The wheel in an environment of its own, in a folder whose files have the names of the packages' folders."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster

from tests.conftest import ROOT
from tests.docs.test_docs import code
from tests.e2e.cli import WITH_TORCH
from tests.forks import Started

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

    def run(self, *command: str | Path, folder: str = ".") -> subprocess.CompletedProcess[str]:
        """A command of the environment in a folder of the user; it must succeed."""
        done = subprocess.run(
            self._words(command), cwd=self.folder / folder, env=self._environment(), capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def forked(self, *words: str, folder: str) -> None:
        """`corpusmill WORDS` of the environment, in a process that has its modules imported; it must succeed."""
        environment = {"PATH": self._environment()["PATH"], "PYTHONPATH": "", "COLUMNS": "80"}
        done = Started(
            1, "corpusmill", *words, env=environment, cwd=self.folder / folder,
            preload="train" if words[0] in WITH_TORCH else "commands", python=str(self.python),
        ).end()  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"

    def serves(self, *command: str | Path, folder: str) -> None:
        """A server that answers, and ends by Ctrl-C."""
        with subprocess.Popen(
            self._words(command), cwd=self.folder / folder, env=self._environment(), stdout=subprocess.PIPE, text=True
        ) as server:  # fmt: skip
            assert server.stdout
            url = server.stdout.readline().strip()
            with urllib.request.urlopen(f"{url}/health") as answer:
                assert json.loads(answer.read()) == {"status": "ok"}
            server.send_signal(signal.SIGINT)
            assert server.wait(120) == 0

    def _words(self, command: Sequence[str | Path]) -> list[str]:
        if command[0] == "torchrun":  # whose script is in the borrowed environment
            command = ("python", "-m", "torch.distributed.run", *command[1:])
        return [str(part) for part in command]

    def _environment(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        path = f"{self.python.parent}{os.pathsep}{env['PATH']}"
        return env | {"PATH": path, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}


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
        ["git", "ls-files", "common", "schemas", "pipeline", "train", "ablate", "configs"], cwd=ROOT, capture_output=True,
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
    shown = installed.run(*command.split()).stdout
    assert "corpusmill" in shown.lower() or "CONFIG" in shown


def test_every_command_of_the_readme_runs(installed: Installed) -> None:
    """In the order of the page, in an empty folder that `init` fills; what it takes from elsewhere is made here."""
    folder, commands = "", readme_commands()
    assert len(commands) > 20
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        for command in commands:
            if command[0] == "cd":
                folder = command[1]
                users_own_files(installed.folder / folder)
                continue
            words = [cluster.scheduler_address if word == "tcp://head:8786" else word for word in command]
            files = [
                sorted(map(str, (installed.folder / folder).glob(w))) if "*" in w else [w] for w in words
            ]
            words = [*itertools.chain(*files)]
            if words[1:2] == ["serve"]:
                installed.serves(*words, "--port", "0", folder=folder)
            elif words[0] == "corpusmill":
                installed.forked(*words[1:], folder=folder)
            else:
                installed.run(*words, folder=folder)
    work = installed.folder / folder
    assert (work / "runs/starter/report.html").exists() and (work / "model/config.json").exists()
    counts = [
        pq.read_table(work / out / "documents").num_rows
        for out in ("out/deduped", "out/filtered", "out/redacted")
    ]
    assert counts == [4, 4, 1]  # one is a copy; another repeats itself; of mail only the address goes


def readme_commands() -> list[list[str]]:
    """The shell lines of the README below the quick start, which is the clone's."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line for block in code(text[text.index("## Your own data") :]) for line in block.splitlines()]
    return [
        shlex.split(line, comments=True)
        for line in lines
        if re.match(r"(corpusmill|torchrun|python|pip|cd) ", line)
    ]


def users_own_files(folder: Path) -> None:
    """A crawl with a duplicate, mail with an address, and ids to take down."""
    texts = [
        json.loads(line)["text"]
        for line in (folder / "documents/documents.jsonl").read_text("utf-8").splitlines()
    ]
    for name, rows in {"a": texts[:2], "b": [texts[1], texts[2], "buy cheap " * 200]}.items():
        (folder / "crawl").mkdir(exist_ok=True)
        with gzip.open(folder / f"crawl/{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in rows)
    (folder / "mail").mkdir()
    (folder / "mail/one.txt").write_text("Write to jane.doe@example.org, please.\n")
    (folder / "ids.txt").write_text("1791_george_washington_n-1\n")
    pairs = [
        {
            "sentence_good": "The ships are old.",
            "sentence_bad": "The ships is old.",
            "UID": "agreement",
            "field": "syntax",
            "pairID": number,
        }
        for number in range(4)
    ]
    (folder / "blimp.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
