"""Peers in environments of their own, made once by the bench that needs them, and the answers of their scripts.

A peer's pins may conflict with ours, so its packages are never installed in the product's environment: they lie in
`.peers/<name>-<hash of the requirements>` at the root of the checkout, to be deleted at any time. A script of
`peer_scripts/` runs in there on a file of documents and prints one JSON value as its last line.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".peers"
SCRIPTS = Path(__file__).resolve().parent / "peer_scripts"
OFFLINE = (
    "NewConnectionError",
    "ConnectTimeout",
    "Name or service not known",
    "name resolution",
    "ProxyError",
)
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)


class NotMeasured(Exception):
    """Why a peer has no figure: the table gives the reason instead."""


class Peer(NamedTuple):
    """A tool to measure beside ours. Without requirements it runs in the product's own environment."""

    name: str
    requirements: tuple[str, ...]
    script: str

    @property
    def label(self) -> str:
        """Name and version."""
        if not self.requirements:
            from importlib.metadata import version

            return f"{self.name} {version(self.name)}"
        return self.requirements[0].replace("==", " ")


DATASKETCH = Peer("datasketch", (), "datasketch_signatures.py")
DATATROVE = Peer(
    "datatrove",
    ("datatrove==0.10.1", "spacy==3.8.18", "tokenizers==0.23.3", "regex==2026.11.15", "xxhash==3.8.2",
     "numpy==2.4.6"),
    "datatrove_minhash.py",
)  # fmt: skip
RENSA = Peer("rensa", ("rensa==0.5.0",), "rensa_signatures.py")
# 0.4.1 needs Python 3.12 and has no defaults for permutations and threshold: this is the last that has them.
TEXT_DEDUP = Peer(
    "text-dedup",
    ("text-dedup==0.4.0", "datasets==5.2.0", "numpy==2.4.6", "scipy==1.17.1"),
    "text_dedup_minhash.py",
)

# Without torch and what of its requirements the product's environment has: put on the path by `packages`.
HARNESS = Peer(
    "lm-eval",
    ("lm-eval==0.4.13", "transformers==5.23.0", "accelerate==1.15.0", "sacrebleu==2.6.0", "portalocker==4.4.2",
     "tabulate==0.9.0", "more-itertools==11.2.1", "sqlitedict==2.1.0", "word2number==1.1"),
    "",
)  # fmt: skip


@lru_cache(maxsize=16)
def environment(name: str, requirements: tuple[str, ...]) -> Path:
    """The Python of an environment that has `requirements`; the first call on a machine makes it.

    Raises `NotMeasured` if it cannot be made: no package index in reach, or no such version for this Python.
    """
    wanted = [*requirements, f"python {sys.version_info.major}.{sys.version_info.minor}"]
    folder = CACHE / f"{name}-{hashlib.sha256(chr(10).join(wanted).encode()).hexdigest()[:12]}"
    python = folder / "bin/python"
    if python.exists():
        return python
    print(f"  making the environment of {name} (once) ...", file=sys.stderr, flush=True)
    making = folder.with_name(f"{folder.name}.{os.getpid()}")
    _make_cache()
    try:
        _command([sys.executable, "-m", "venv", "--without-pip", str(making)])
        _command([*installing(making / "bin/python"), "--retries", "1", "--timeout", "30", *requirements])
        # The first one wins; a Python started from the renamed folder finds its packages.
        if not python.exists():
            making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return python


@lru_cache(maxsize=16)
def packages(name: str, requirements: tuple[str, ...]) -> Path:
    """A folder of `requirements` without what they need, to be put last on the path of our own Python; the first call on a
    machine makes it. For packages on top of torch, whose environments would take gigabytes. Raises `NotMeasured`.
    """
    version = f"python {sys.version_info.major}.{sys.version_info.minor}"
    key = hashlib.sha256("\n".join([*requirements, version]).encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{key}"
    if folder.exists():
        return folder
    making = folder.with_name(f"{folder.name}.{os.getpid()}")
    _make_cache()
    try:
        _command(
            [*installing(Path(sys.executable)), "--retries", "1", "--timeout", "30", "--no-deps", "--target",
             str(making), *requirements]
        )  # fmt: skip
        if not folder.exists():
            making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _make_cache() -> None:
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")


def installing(python: Path) -> list[str]:
    """The command that installs what follows for an environment's Python: by our own pip, and with byte code of what is
    imported alone, since a second pip and the rest of the byte code took half of the time."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        f"--python={python}",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    return [*pip, "--no-compile"]


def _command(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return
    if any(sign in done.stderr for sign in OFFLINE):
        raise NotMeasured("the package index cannot be reached")
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")] or ["no reason given"]
    raise NotMeasured(f"its environment cannot be made: {errors[-1].removeprefix('ERROR: ')[:200]}")


def ask(peer: Peer, *arguments: str | Path) -> Any:
    """What the peer's script prints for these arguments. Raises `NotMeasured`."""
    python = environment(peer.name, peer.requirements) if peer.requirements else Path(sys.executable)
    command = [str(python), str(SCRIPTS / peer.script), *map(str, arguments)]
    home = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ONE_THREAD, **home})
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotMeasured(f"its script failed: {lines[-1][:200]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def write_documents(path: Path, ids: Iterable[str], texts: pa.Array) -> Path:
    """The input of all scripts: JSON lines with `id` and `text`."""
    with path.open("w", encoding="utf-8") as file:
        for name, text in zip(ids, texts.to_pylist(), strict=True):
            file.write(json.dumps({"id": name, "text": text}) + "\n")
    return path
