"""Rewrite the lock files from pyproject.toml: `make lock` (needs the `uv` command).

`run.txt` is what `make quickstart` installs, `dev.txt` what the tests, linters, benches and docs add; both hold
hashes and serve Python 3.11 and 3.12. torch stays out of them, since its hash differs between the CPU and
the CUDA builds; `constraints.txt` pins it, together with everything else, without hashes.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TORCH = "torch==2.13.0"
# What torch itself asks for: locked here, so that installing torch first pulls nothing unpinned.
TORCH_NEEDS = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools>=77"]
BUILD = ["hatchling>=1.27", "editables>=0.5"]


def compile_lock(requirements: list[str], out: Path, extra: list[str]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".in") as source:
        source.write("\n".join(requirements) + "\n")
        source.flush()
        command = ["uv", "pip", "compile", "--universal", "--python-version", "3.11", "--no-header"]
        command += ["--no-annotate", "--quiet", *extra, source.name, "-o", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run = [r for r in project["dependencies"] if not re.match(r"torch\b", r)] + TORCH_NEEDS + BUILD
    extras = project["optional-dependencies"]
    dev = run + extras["dev"] + extras["docs"]
    constraints = ROOT / "constraints.txt"
    compile_lock(dev, constraints, [])
    constraints.write_text(f"{TORCH}\n{constraints.read_text()}")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:  # the same versions in all three files
        pins.write("\n".join(constraints.read_text().splitlines()[1:]))
        pins.flush()
        compile_lock(run, HERE / "run.txt", ["--generate-hashes", "-c", pins.name])
        compile_lock(dev, HERE / "dev.txt", ["--generate-hashes", "-c", pins.name])


if __name__ == "__main__":
    main()
