"""The walls between the rooms, and the habits that a machine can see."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

ROOMS = {"schemas": {"schemas"}, "pipeline": {"schemas", "pipeline"}, "train": {"schemas", "train"}}
SHARED = {"bpe"}  # folders of `pipeline` that are no stage: any stage may use them
FILES = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_meet_only_in_schemas(room: str) -> None:
    for file in (ROOT / room).rglob("*.py"):
        across = {name.split(".")[0] for name in imports(file)} & (set(ROOMS) - ROOMS[room])
        assert not across, f"{file.relative_to(ROOT)} imports {across}"


def test_stages_do_not_import_each_other() -> None:
    for file in (ROOT / "pipeline").rglob("*.py"):
        parts = file.relative_to(ROOT / "pipeline").parts
        if len(parts) < 2 or file.name == "train_shipped.py":
            continue
        for name in imports(file):
            pieces = name.split(".")
            if pieces[0] == "pipeline" and len(pieces) > 2:
                assert pieces[1] in {parts[0], *SHARED}, f"{file.relative_to(ROOT)} imports {name}"


def test_no_pickle_no_shell() -> None:
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert not set(imports(file)) & {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}, file
        assert not re.search(r"shell\s*=\s*True|os\.system\(|extractall\(|allow_pickle\s*=\s*True", text), (
            file
        )
        assert "torch.load(" not in text or "weights_only=True" in text, file


def test_files_fit_in_a_head() -> None:
    long = {str(f.relative_to(ROOT)): n for f in FILES if (n := len(f.read_text("utf-8").splitlines())) > 400}
    assert long == {}


def code_lines(file: Path) -> int:
    """Lines that hold code: no blank ones, comments or docstrings."""
    text = file.read_text(encoding="utf-8")
    prose = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    empty = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - prose)


def test_the_trainer_can_be_read() -> None:
    """What a run executes: without the loader, and without the commands around a run."""
    around = {"data", "estimate", "tune", "dashboard", "evaluate", "export"}
    files = [
        f
        for f in FILES
        if f.is_relative_to(ROOT / "train") and f.relative_to(ROOT / "train").parts[0] not in around
    ]
    assert sum(map(code_lines, files)) < 5000


def test_every_folder_says_what_lives_there() -> None:
    for folder in {f.parent for f in FILES}:
        init = folder / "__init__.py"
        assert init.exists() and ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), folder
