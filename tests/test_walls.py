"""The rules of imports between the folders, and other rules that a test can check."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

STAGES = {
    "ingest",
    "filter",
    "dedup",
    "decontaminate",
    "redact",
    "ledger",
    "split",
    "tokenizer",
    "shard",
    "augment",
    "conversations",
    "report",
}
BELOW = {"pipeline.bpe", "pipeline.text", "pipeline.engine", "schemas", "common"}  # what a stage may import
ALLOWED: dict[str, set[str]] = {
    "common": set(),
    "schemas": {"common"},
    "pipeline.engine": {"pipeline.text", "schemas", "common"},
    "pipeline.text": {"schemas", "common"},
    "pipeline.bpe": {"pipeline.text", "pipeline.engine", "schemas", "common"},
    "pipeline.transforms": {"pipeline.engine", "schemas", "common"},
    **{f"pipeline.{stage}": BELOW for stage in STAGES},
    "pipeline.inspect": {*(f"pipeline.{stage}" for stage in STAGES), *BELOW},
    "pipeline.api": {*(f"pipeline.{stage}" for stage in STAGES), "pipeline.inspect", *BELOW},
    "pipeline.commands": {*(f"pipeline.{stage}" for stage in STAGES), "pipeline.inspect", *BELOW},
    "train": {"schemas", "common"},
    "ablate": {"pipeline.api", "train", "schemas", "common"},  # above both
}
FOLDERS = ("common", "schemas", "pipeline", "train", "ablate")
FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]


@cache
def import_statements(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """Those anywhere in a file."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(file: Path) -> Iterator[str]:
    """Modules, and names taken from modules, that a file imports anywhere."""
    for node in import_statements(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module:
            assert node.level == 0, f"{file}: a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(parts: Sequence[str]) -> str:
    """The layer of a file or module below the package: `train`, or `pipeline.text`."""
    return ".".join(parts[:2]) if parts[0] == "pipeline" else parts[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_go_down(folder: str) -> None:
    """Commands, inspect, stages, then bpe, text and engine, then schemas, then common; `train` beside `pipeline`."""
    wrong = set()
    for file in (ROOT / folder).rglob("*.py"):
        own = layer(file.relative_to(ROOT).parts) if file.parent != ROOT / "pipeline" else "pipeline"
        for name in imports(file):
            if name.startswith("corpusmill."):
                other = layer(name.split(".")[1:])
                if other not in {own, *ALLOWED.get(own, set())} and other != "pipeline":
                    wrong.add(f"{file.relative_to(ROOT)} imports {name}")
    assert sorted(wrong) == []


def test_no_module_stands_beside_the_folders_of_the_pipeline() -> None:
    assert [file.name for file in (ROOT / "pipeline").glob("*.py")] == ["__init__.py"]
    folders = {file.relative_to(ROOT / "pipeline").parts[0] for file in (ROOT / "pipeline").rglob("*/*.py")}
    assert folders == {name.split(".")[1] for name in ALLOWED if name.startswith("pipeline.")}


def test_everything_is_imported_as_corpusmill() -> None:
    old = {"pipeline", "train", "schemas"}
    for folder in (*FOLDERS, "tests", "bench"):
        for file in (ROOT / folder).rglob("*.py"):
            assert not {name.split(".")[0] for name in imports(file)} & old, file


def test_no_pickle_no_shell() -> None:
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert not set(imports(file)) & {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}, file
        assert not re.search(r"shell\s*=\s*True|os\.system\(|extractall\(|allow_pickle\s*=\s*True", text), (
            file
        )
        assert not re.search(r"torch\.load\((?!.*weights_only=True)", text), file


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
    """What a pretraining executes: without the loader, the logs, the commands and the API around a run, what comes after it, and
    the files of a single option, which are short."""
    around = {
        "data", "commands", "tools", "log", "evaluate", "generate", "finetune", "api.py", "__main__.py",
        "model/lora.py", "model/adapters.py", "model/nf4.py", "model/virtual.py", "model/flops.py",
        "model/probe.py",
    }  # fmt: skip
    inside = [f for f in FILES if f.is_relative_to(ROOT / "train")]
    places = {f: f.relative_to(ROOT / "train") for f in inside}
    options = {
        "model/blockwise.py", "precision/fp8.py", "precision/offload.py", "parallel/elastic.py", "parallel/context.py", "parallel/ring.py", "parallel/passing.py",
        "optim/average.py", "optim/hypergradient.py", "micro_batch.py", "outer/worker.py", "outer/exchange.py", "model/mup.py", "model/value_residual.py",
        "model/mtp.py",
        "model/mla.py",
    }  # fmt: skip
    assert all(code_lines(ROOT / "train" / place) < 120 for place in options)
    files = [f for f, place in places.items() if not {place.parts[0], str(place)} & (around | options)]
    assert sum(map(code_lines, files)) < 5000


def test_every_folder_says_what_lives_there() -> None:
    for folder in {f.parent for f in FILES}:
        init = folder / "__init__.py"
        assert init.exists() and ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), folder


def imported_files() -> dict[str, set[str]]:
    """Modules by name, each with the others that it imports: at the top, in functions, for types alike."""
    files = {}
    for file in FILES:
        parts = ("corpusmill", *file.relative_to(ROOT).with_suffix("").parts)
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    found: dict[str, set[str]] = {}
    for module, file in files.items():
        found[module] = set()
        for node in import_statements(file):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in files else node.module for name in inner]
            found[module] |= {name for name in names if name in files} - {module}
    return found


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one node (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        path.append(node)
        for other in edges[node]:
            if other not in order:
                visit(other)
            if other in path:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == order[node]:
            start = path.index(node)
            if len(path) - start > 1:
                found.append(sorted(path[start:]))
            del path[start:]

    for node in edges:
        if node not in order:
            visit(node)
    return found


def test_files_do_not_import_each_other_in_a_circle() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert cycles(imported_files()) == []


def test_folders_of_the_trainer_do_not_import_each_other_in_a_circle() -> None:
    """Modules that stand in `train` itself count one by one."""
    folders: dict[str, set[str]] = {}
    modules = imported_files()
    for module, others in modules.items():
        if module.startswith("corpusmill.train."):
            for name in (module, *others):
                folders.setdefault(folder_of(name), set())
            folders[folder_of(module)] |= {folder_of(name) for name in others} - {folder_of(module)}
    assert cycles(folders) == []


def folder_of(module: str) -> str:
    """The folder of a module, or the module if it stands in `train` itself."""
    package, _, _ = module.rpartition(".")
    return module if package in {"corpusmill", "corpusmill.train"} else package
