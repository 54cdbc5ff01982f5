"""The command line as a newcomer meets it: help, mistakes, exit codes, commands on one's own files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from corpusmill.__main__ import build, in_lines
from tests.command_line import CliRunner
from tests.conftest import ROOT
from tests.e2e.cli import corpusmill, started

COMMANDS = [
    "ablate",
    "init", "warmup", "run", "ingest", "filter", "dedup", "redact", "tokenizer", "shard", "report", "why", "verify", "classifier",
    "signals", "what-if", "parity", "decontaminate", "passages", "dedup-plan", "train", "evaluate", "generate", "plan", "batch", "trace",
    "find", "compare", "takedown", "publish", "expire", "plan-run", "shard-export", "checkpoint", "estimate", "lr-find", "search",
    "dashboard", "export", "chat", "serve", "tasks", "task-data", "contamination", "compare-models", "calibration", "score",
    "glue-rows", "arithmetic", "finetune", "style", "fairness", "glitch-tokens", "judge", "cross-validate", "compress", "exposure", "teacher-logits", "reward", "pseudo-label", "robustness", "forgetting", "average", "branch",
]  # fmt: skip
HEAVY = ("torch", "dask", "distributed", "numba", "pyarrow", "datasketch", "scipy", "numpy")


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
sys.argv = ["corpusmill", "--help"]
from corpusmill.__main__ import main
try:
    main()
except SystemExit:
    pass
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr.strip() == "[]"
    assert all(command in result.stdout for command in COMMANDS)


def test_a_typing_error_in_a_training_config_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("name: x\nmodel: {dmi: 3}\ndata: {shards: y}\n")
    code = f"""
import sys
sys.argv = ["corpusmill", "train", {str(tmp_path / "train.yaml")!r}]
from corpusmill.__main__ import main
try:
    main()
except SystemExit as end:
    assert end.code == 2, end.code
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, last = result.stderr.splitlines()
    assert "model.dmi: unknown key; did you mean 'dim'?" in first and last == "[]"


def test_a_run_with_nothing_to_do_imports_what_it_looks_with(quickstart_run: Path, tmp_path: Path) -> None:
    shutil.copytree(quickstart_run, tmp_path / "run")
    code = f"""
import sys
sys.argv = ["corpusmill", "run", "configs/recipes/quickstart.yaml", "--set", "output={tmp_path / "run"}"]
from corpusmill.__main__ import main
try:
    main()
except SystemExit:
    pass
print("imported:", [name for name in {(*HEAVY, "pandas", "jsonschema")!r} if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "everything is finished and valid, nothing to do" in result.stderr
    assert result.stderr.splitlines()[-1] == "imported: ['pyarrow', 'numpy']"


@pytest.mark.usefixtures("quickstart_run")  # by which all kernels are compiled: compiling imports SciPy
def test_a_small_run_imports_no_more_than_its_stages_need(tmp_path: Path) -> None:
    recipe = f"""
name: small
output: {tmp_path / "run"}
sources: {{speeches: {{paths: [{ROOT / "examples/corpus/sources/speeches"}], min_kept: 0}}}}
tokenizer: {{vocab_size: 300}}
"""
    (tmp_path / "recipe.yaml").write_text(recipe)
    code = f"""
import sys
sys.argv = ["corpusmill", "run", {str(tmp_path / "recipe.yaml")!r}]
from corpusmill.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code, end
heavy = "torch", "dask", "distributed", "datasketch", "scipy", "pandas", "transformers"
print("imported:", [name for name in heavy if name in sys.modules], file=sys.stderr)
import ctypes
libraries = {{line.split()[-1] for line in open("/proc/self/maps") if "scipy_openblas" in line}}
print([ctypes.CDLL(name).scipy_openblas_get_num_threads64_() for name in libraries], file=sys.stderr)
"""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert result.stderr.splitlines()[-2:] == ["imported: []", "[1]"]


@pytest.mark.parametrize("command", ["run", "train", "classifier"])
def test_help_of_a_command_in_a_process_of_its_own(command: str) -> None:
    """All commands' help is looked at below, in this process."""
    out = started(command, "--help").stdout
    assert max(map(len, out.splitlines())) <= 80 and f"corpusmill {command} [OPTIONS]" in out


@pytest.mark.parametrize("group", ["classifier", "checkpoint"])
def test_help_of_a_group_fits_80_columns(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, CliRunner().invoke(build(), [group, "--help"]).output.splitlines())) <= 80


def test_every_command_is_looked_at() -> None:
    """The top of the tree is what `--help` lists."""
    assert {path[0] for path in commands(typer.main.get_command(build()))} == {*COMMANDS}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, those of groups too."""
    for name, command in group.commands.items():
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else [(*path, name)]
        yield from ((*path, name, other) for other in getattr(command, "beside", ()))


def test_a_command_that_is_called_is_built_alone_and_any_other_word_sees_all() -> None:
    for word in COMMANDS:
        assert [*typer.main.get_command(build(word)).commands] == [word]  # type: ignore[attr-defined]
    assert len(typer.main.get_command(build("filtr")).commands) == len(COMMANDS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", list(commands(typer.main.get_command(build()))), ids=" ".join)
def test_every_example_can_be_copied_from_80_columns(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = CliRunner().invoke(build(), [*command, "--help"]).output
    example = out.partition("  Example: ")[2].strip("\n")
    assert max(map(len, out.splitlines())) <= 80
    whole = example.replace("\\\n", "")  # as a shell takes it
    assert "\n" not in whole and shlex.split(whole)[: len(command) + 1] == ["corpusmill", *command]
    assert "\n" not in example or command[0] not in ("run", "tokenizer", "shard", "shard-export"), (
        "short ones"
    )


def test_a_long_example_is_broken_between_its_words() -> None:
    assert in_lines("Example: corpusmill short", 25) == "Example: corpusmill short"
    example = "Example: corpusmill long --name 'of two' --other-one 3 --flag rest"
    assert in_lines(example, 30).split("\n") == [
        "Example: corpusmill long \\", "  --name 'of two' \\", "  --other-one 3 --flag rest"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runn", "x"], "No such command 'runn'"),
        (["run", "nothing.yaml"], "nothing.yaml: no such file"),
        (
            ["run", "configs/recipes/quickstart.yaml", "--set", "dedup.similarty=0.7"],
            "did you mean 'similarity'?",
        ),
        (["dedup", "nowhere.jsonl", "out"], "nowhere.jsonl"),
        (["dedup", "README.md", "out", "--similarity", "7"], "less than or equal to 1"),
        (["why", "abc", "--run", "nowhere"], "no ledger there"),
        (["verify", "nowhere"], "no finished stage there"),
        (["what-if", "docs"], "docs: is a folder; for a finished run give --run docs"),
        (["train", "nothing.yaml"], "nothing.yaml: no such file"),
    ],
)
def test_a_users_mistake_is_reported_in_a_line_with_exit_code_2(arguments: list[str], message: str) -> None:
    result = corpusmill(*arguments, check=False)
    assert result.returncode == 2, result.stderr
    assert message in " ".join(result.stderr.split()) and "Traceback" not in result.stderr


def test_an_unwritable_output_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "file").write_text("")
    result = started("ingest", tmp_path / "docs.jsonl", tmp_path / "file/out", "--workers", "0", check=False)
    assert result.returncode == 1 and "cannot write" in result.stderr and "Traceback" not in result.stderr


def test_dedup_on_ones_own_files(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(60)]
    texts = {"a": words, "b": [*words, "more"], "c": words[::-1], "d": words}
    lines = [json.dumps({"name": name, "body": " ".join(text)}) for name, text in texts.items()]
    (tmp_path / "docs.jsonl").write_text("\n".join([*lines, "not json"]))
    out = tmp_path / "out"
    result = started(
        "dedup", tmp_path / "docs.jsonl", out, "--text-column", "body", "--id-column", "name", "--similarity", "0.9",
        "--workers", "0", "--json",
    )  # fmt: skip
    assert json.loads(result.stdout)["stages"]["dedup"]["counts"]["removed"] == 2
    kept = [row for f in (out / "documents").glob("*.parquet") for row in pq.read_table(f).to_pylist()]
    assert {row["source_id"] for row in kept} == {"b", "c"}, "the longest copy stays"
    rows = [row for f in (out / "ledger").glob("*.parquet") for row in pq.read_table(f).to_pylist()]
    assert sorted(row["outcome"] for row in rows) == ["kept", "kept", "quarantined", "removed", "removed"]
    assert (out / "clusters.parquet").exists()
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []
    (answer,) = json.loads(corpusmill("why", "a", "--run", out, "--json").stdout)
    assert answer["rule"].startswith("dedup.") and answer["jaccard"] >= 0.9


def test_the_report_of_a_stage_by_itself(tmp_path: Path) -> None:
    """It is written beside what the stage published, which stays as it was: finished, valid, and found by `why`."""
    words = [f"word{i}" for i in range(60)]
    texts = [words, [*words, "more"], words[::-1]]
    (tmp_path / "docs.jsonl").write_text("\n".join(json.dumps({"text": " ".join(text)}) for text in texts))
    out = tmp_path / "out"
    again = ("dedup", tmp_path / "docs.jsonl", out, "--workers", "0")
    corpusmill(*again)
    for _ in range(2):
        assert corpusmill("report", out, "--set", "samples=1").stdout.split() == [str(out / "report.html")]
    figures = json.loads((out / "report/report.json").read_text())
    assert [step["stage"] for step in figures["flow"]] == ["ingest", "dedup"]
    assert figures["duplicates"]["removed"] == 1 and figures["duplicates"]["s_curve"]
    assert (out / "report.html").read_bytes() == (out / "report/report.html").read_bytes()
    assert json.loads(corpusmill("verify", out, "--json").stdout)["problems"] == []
    assert "everything is finished and valid" in corpusmill(*again).stderr
    refused = corpusmill("report", out / "documents", check=False)
    assert refused.returncode == 2 and "no finished run there" in refused.stderr


def test_stage_by_stage_on_ones_own_files(tmp_path: Path) -> None:
    """What one command publishes, the next one reads; ids stay."""
    text = "Please write to jane.doe@example.org about the history of the harbour. " * 30
    (tmp_path / "docs").mkdir()
    for name in "abc":
        (tmp_path / f"docs/{name}.txt").write_text(f"{name} {text} {name}")
    one = tmp_path / "redacted"
    corpusmill("redact", tmp_path / "docs", one, "--workers", "0")
    rows = pq.read_table(one / "documents").to_pylist()
    assert len(rows) == 3 and all("<EMAIL>" in r["text"] and "jane.doe" not in r["text"] for r in rows)
    corpusmill("tokenizer", one / "documents", tmp_path / "tok", "--vocab-size", "300", "--workers", "0")
    tokenizer = tmp_path / "tok/tokenizer.json"
    corpusmill("shard", one / "documents", tmp_path / "shards", "--tokenizer", tokenizer, "--workers", "0")
    index = json.loads((tmp_path / "shards/index.json").read_text())
    assert sum(entry["ndocs"] for entry in index["sets"]) == 3
    assert {r["doc_id"] for r in rows} == {
        r["doc_id"] for r in pq.read_table(tmp_path / "shards/before/ingest/documents").to_pylist()
    }
