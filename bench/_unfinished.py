"""An interrupted run of all benches: the sections that it has, for as long as nothing that they measure has changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "bench/unfinished.json"
MEASURED = ("common", "pipeline", "schemas", "train", "configs", "bench", "examples")


def sources(root: Path = ROOT) -> str:
    """SHA-256 (hex) of what decides what is measured: modules, configs and data of the benches and of what they run, and the
    versions of libraries."""
    whole = hashlib.sha256()
    for file in sorted(
        [root / "constraints.txt", *(file for name in MEASURED for file in (root / name).rglob("*"))]
    ):
        parts = file.relative_to(root).parts
        results = file.suffix in (".md", ".json") and parts[0] == "bench"
        if file.is_file() and not results and "__pycache__" not in parts and "runs" not in parts:
            whole.update(f"{'/'.join(parts)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


@dataclass
class Unfinished:
    """The sections by name, as they came; kept in a file after each of them."""

    sources: str
    sections: dict[str, str] = field(default_factory=dict)

    @classmethod
    def found(cls, file: Path, root: Path = ROOT) -> Unfinished:
        """The interrupted run, if it was of these sources; else a new one."""
        new = cls(sources(root))
        try:
            kept = cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return new
        return kept if kept.sources == new.sources else new

    def add(self, name: str, section: str, file: Path) -> None:
        self.sections[name] = section
        file.write_text(json.dumps(vars(self)), encoding="utf-8")
