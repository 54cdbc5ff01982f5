"""The version of the package, from the tags of the repository (`v0.2.0`): read by the build alone, see `pyproject.toml`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASE = "0.1.0"  # where there is no tag: a source archive, a clone without tags


def version(root: Path = ROOT) -> str:
    """`0.2.0` at the tag v0.2.0; n commits after it `0.2.1.dev<n>+g<commit>`, so that it sorts before the next release."""
    if not (root / ".git").exists():  # a folder above may belong to another project
        return BASE
    command = ["git", "describe", "--tags", "--long", "--match", "v[0-9]*"]
    try:
        described = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return BASE
    found = re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)-(\d+)-(g[0-9a-f]+)\n", described)
    if found is None:
        return BASE
    major, minor, patch, commits = map(int, found.groups()[:4])
    if commits == 0:
        return f"{major}.{minor}.{patch}"
    return f"{major}.{minor}.{patch + 1}.dev{commits}+{found[5]}"
