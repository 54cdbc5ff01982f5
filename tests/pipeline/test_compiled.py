"""What Numba keeps goes when a kernel that it may call is newer."""

from __future__ import annotations

import os
from pathlib import Path

from corpusmill.pipeline.compiled import forget_stale


def test_only_what_is_older_than_a_kernel_goes(tmp_path: Path) -> None:
    files = {
        "kernels/a.py": "@njit\ndef a(): ...",
        "kernels/plain.py": "x = 1",
        "b.py": "from numba import njit",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "__pycache__").mkdir()
    for name, age in (("old", 10), ("new", 30)):
        (tmp_path / f"__pycache__/{name}.nbi").touch()
        os.utime(tmp_path / f"__pycache__/{name}.nbi", (age, age))
    for name, age in (("kernels/a.py", 20), ("kernels/plain.py", 40), ("b.py", 40)):
        os.utime(tmp_path / name, (age, age))

    def left() -> list[str]:
        return sorted(path.stem for path in tmp_path.rglob("*.nbi"))

    forget_stale([tmp_path], [tmp_path / "kernels"])
    assert left() == ["new"]
    forget_stale([tmp_path], [tmp_path / "kernels", tmp_path / "b.py"])
    assert left() == []
