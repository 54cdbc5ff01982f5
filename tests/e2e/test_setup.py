"""`corpusmill init` and `corpusmill warmup`, as a newcomer meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from corpusmill.common.kernel_keys import cache_folder
from corpusmill.pipeline.commands.setup import FILES, TEMPLATES
from tests.conftest import IMPORT_PATH, ROOT
from tests.e2e.cli import corpusmill, started

pytestmark = pytest.mark.xdist_group("e2e")


def test_what_init_writes_runs(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    out = corpusmill("init", "mine", cwd=tmp_path).stdout
    assert out.splitlines()[-1] == "now: cd mine && corpusmill run recipe.yaml"
    written = {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}
    assert written == set(FILES.values())
    run = corpusmill("run", "recipe.yaml", "--workers", "0", "--json", cwd=place)
    stages = json.loads(run.stdout)["stages"]
    assert stages["filter"]["counts"]["removed"] >= 2 and stages["dedup"]["counts"]["removed"] >= 1
    answer = corpusmill("why", "repetition", "--run", "runs/starter", cwd=place).stdout
    assert "removed     at filter" in answer
    trained = corpusmill("train", "train.yaml", "--json", cwd=place)
    assert json.loads(trained.stdout)["steps"] == 20
    text = corpusmill(
        "generate", "train.yaml", "--prompt", "The people", "--max-tokens", "5", cwd=place
    ).stdout
    assert len(text) > 1


def test_init_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, what in (("full", "is not empty"), ("file", "is a file")):
        refused = corpusmill("init", name, cwd=tmp_path, check=False)
        assert refused.returncode == 2
        assert refused.stderr == f"error: {name}: {what}; name a new folder, or an empty one\n"
    assert (tmp_path / "full/notes").read_text() == "mine" and len(list((tmp_path / "full").iterdir())) == 1
    (tmp_path / "empty").mkdir()
    corpusmill("init", "empty", cwd=tmp_path)
    assert (tmp_path / "empty/recipe.yaml").read_bytes() == (TEMPLATES / "recipe.yaml").read_bytes()


def test_help_ends_with_what_exists_anywhere() -> None:
    assert corpusmill("--help").stdout.rstrip().endswith("Start with: corpusmill init my-corpus")


@pytest.mark.timeout(1800)  # where the machine's cache is empty
def test_after_a_warmup_a_run_compiles_nothing(tmp_path: Path) -> None:
    """In the machine's cache, which may be full: every kernel that a run takes from it, `warmup` takes from it or puts there."""
    output, known, _ = watched("warmup", folder=tmp_path)
    assert (
        len(re.findall(r"^(?:a run|other options|datatrove) +\d+ kernels compiled", output, re.MULTILINE))
        == 3
    )
    assert re.search(rf"^\d+ kernels in {re.escape(str(cache_folder()))}, ", output, re.MULTILINE)
    assert len(known) > 100
    corpusmill("init", "mine", cwd=tmp_path)
    example = [
        "run",
        str(ROOT / "configs/recipes/quickstart.yaml"),
        "--set",
        f"output={tmp_path / 'example'}",
    ]
    for command, place in (
        (["run", "recipe.yaml", "--workers", "1"], tmp_path / "mine"),
        (["verify", "runs/starter"], tmp_path / "mine"),
        (example, ROOT),
    ):
        _, used, compiler = watched(*command, folder=tmp_path, cwd=place)
        assert used and used <= known, used - known
        assert not compiler


def test_the_first_run_says_that_it_compiles(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "A text."}\n')
    (tmp_path / "r.yaml").write_text("name: r\nsources: {a: {paths: [texts.jsonl]}}\nstages: [ingest]\n")
    kept = tmp_path / "cache" / cache_folder().name / "module"
    line = "the first run on this machine compiles its kernels: some minutes, once\n"
    for times in (1, 0):
        shown = corpusmill(
            "run",
            "r.yaml",
            "--dry-run",
            cwd=tmp_path,
            env={"CORPUSMILL_KERNEL_CACHE": str(tmp_path / "cache")},
        )
        assert shown.stderr.count(line) == times, shown.stderr
        kept.mkdir(parents=True, exist_ok=True)
        (kept / "kernel-0.code").write_bytes(b"")


# Python imports it at its start, in the command and in its workers.
WATCH = """
import os, sys
seen = os.open(os.environ["KERNELS_SEEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def hook(event, values):
    if event == "open" and str(values[0]).endswith(".code"):
        os.write(seen, f"{values[0]}\\n".encode())
    elif event == "import" and values[0] == "corpusmill.common.kernel_compiler":
        os.write(seen, b"the compiler\\n")
sys.addaudithook(hook)
"""


def watched(*command: str, folder: Path, cwd: Path = ROOT) -> tuple[str, set[str], bool]:
    """(output, files of kernels that the command and its workers ask for, whether one of them needs the compiler)."""
    (folder / "watch").mkdir(exist_ok=True)
    (folder / "watch/sitecustomize.py").write_text(WATCH)
    seen = folder / "seen"
    seen.unlink(missing_ok=True)
    path = f"{folder / 'watch'}{os.pathsep}{IMPORT_PATH}"
    output = started(*command, cwd=cwd, env={"PYTHONPATH": path, "KERNELS_SEEN": str(seen)}).stdout
    files = set(seen.read_text().splitlines())
    return output, files - {"the compiler"}, "the compiler" in files


def test_make_takes_a_python_that_can_make_environments_and_the_one_that_is_given() -> None:
    show = ["make", "--silent", "--eval", "show: ; @echo $(PYTHON)", "show"]
    chosen = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    code = "import ensurepip, sys; print(sys.version_info[:2] in ((3, 11), (3, 12)))"
    assert subprocess.run([chosen, "-c", code], capture_output=True, text=True).stdout == "True\n"
    given = subprocess.run([*show, "PYTHON=mine"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert given.stdout == "mine\n"
