"""An interrupted run of all benches: the sections that it has, each for as long as nothing that it measures has changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "bench/unfinished.json"
MEASURED = ("common", "pipeline", "schemas", "train", "configs", "bench", "examples")
# Other modules of bench/ in the text of one: imported, or named for a process of its own.
_NAMED = re.compile(r"\bbench\.(\w+)|from bench import (\w+(?:, \w+)*)")


def sources(names: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """For each bench SHA-256 (hex) of what decides what it measures: the product's modules, configs and data, the modules of bench/ that
    it consists of, and the versions of libraries."""
    hashes = dict[str, bytes]()
    for file in sorted(
        [root / "constraints.txt", *(file for name in MEASURED for file in (root / name).rglob("*"))]
    ):
        parts = file.relative_to(root).parts
        results = file.suffix in (".md", ".json") and parts[0] == "bench"
        if file.is_file() and not results and "__pycache__" not in parts and "runs" not in parts:
            hashes["/".join(parts)] = hashlib.sha256(file.read_bytes()).digest()
    modules = {path for path in hashes if re.fullmatch(r"bench/\w+\.py", path)}
    found = {}
    for name in names:
        others, whole = modules - _modules(name, root), hashlib.sha256()
        for path, content in hashes.items():
            if path not in others:
                whole.update(f"{path}\0".encode() + content)
        found[name] = whole.hexdigest()
    return found


def _modules(name: str, root: Path) -> set[str]:
    """The modules of bench/ that a bench consists of, as paths below `root`."""
    found, left = set[str](), {name}
    while left:
        path = f"bench/{left.pop()}.py"
        if path not in found and (root / path).is_file():
            found.add(path)
            for one, several in _NAMED.findall((root / path).read_text(encoding="utf-8")):
                left |= {one} if one else set(several.split(", "))
    return found


class Unfinished:
    """The sections by name, as they came; kept in a file after each of them."""

    def __init__(self, names: Iterable[str], file: Path, root: Path = ROOT) -> None:
        """What `file` has of these benches, of the present sources."""
        self.file, self.sources = file, sources(names, root)
        self.sections: dict[str, str] = {}
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            for name, (of, section) in kept.items():
                if self.sources.get(name) == of:
                    self.sections[name] = section
        except (OSError, ValueError, TypeError, AttributeError):
            pass

    def add(self, name: str, section: str) -> None:
        self.sections[name] = section
        kept = {name: (self.sources[name], section) for name, section in self.sections.items()}
        self.file.write_text(json.dumps(kept), encoding="utf-8")
