"""The notebooks run from the first cell to the last, in a folder of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import IMPORT_PATH, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, a cell each."""
    return [
        "".join(cell["source"])
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]


def test_there_are_two() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["clean-a-data-set", "train-and-inspect"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_every_cell_runs(notebook: Path, tmp_path: Path) -> None:
    for library in ("pandas", "polars", "duckdb", "datasets"):
        if re.search(rf"(import|from) {library}\b", notebook.read_text(encoding="utf-8")):
            pytest.importorskip(library)
    (tmp_path / "corpus").symlink_to(ROOT / "examples/corpus")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "cells.py").write_text("\n\n".join(cells(notebook)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, tmp_path / "cells.py"], cwd=tmp_path / "notebooks", capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if notebook.stem == "train-and-inspect":
        assert "step  60  loss" in done.stdout and done.stdout.endswith("0 problems\n")
    else:
        assert "462 in, 330 kept" in done.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_what_is_shown_is_of_a_whole_run(notebook: Path) -> None:
    """Outputs as Jupyter wrote them, in order, and no path of the machine that ran it."""
    text = notebook.read_text(encoding="utf-8")
    counts = [c["execution_count"] for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert '"output_type": "error"' not in text
    assert not [place for place in (str(ROOT), "/home/", "/tmp/", "/Users/") if place in text]
