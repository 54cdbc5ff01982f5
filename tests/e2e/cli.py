"""Whole commands in processes of their own, as a user runs them, on a small real corpus."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import IMPORT_PATH, ROOT
from tests.forks import Finished, launch

EXAMPLES = ROOT / "examples/corpus/sources"
RECIPE = """\
name: small
output: {output}
seed: 7
sources:
  books: {{paths: [{corpus}/books], priority: 3}}
  speeches: {{paths: [{corpus}/speeches.jsonl.gz], priority: 3}}
  qa: {{paths: [{corpus}/faq.jsonl.zst], priority: 2}}
  docs: {{paths: [{corpus}/docs.warc.gz], priority: 2}}
  planted: {{paths: [{corpus}/planted]}}
ingest: {{partition_mb: 0.25}}
filter:
  language: {{keep: [en]}}
  skip_sources: {{qa: [c4, fineweb]}}
split: {{validation_share: 0.05, min_documents: 2}}
tokenizer: {{vocab_size: 1024, sample_mb: 1}}
shard: {{block_tokens: 4096, shard_mb: 0.2}}
report: {{samples: 1}}
"""


# Commands that use PyTorch: they are forked from a process that has imported it.
WITH_TORCH = {
    "train", "evaluate", "generate", "plan", "batch", "contamination", "estimate", "export", "compress", "finetune",
}  # fmt: skip


def corpusmill(
    *arguments: str | Path, env: dict[str, str] | None = None, check: bool = True, cwd: Path = ROOT
) -> Finished | subprocess.CompletedProcess[str]:
    """`corpusmill ARGUMENTS` to its end, in a process forked from one that has everything imported; in one of a new
    interpreter for a hash seed. Workers are forked."""
    words = [str(argument) for argument in arguments]
    preload = "train" if words[0] in WITH_TORCH else "commands"
    if "PYTHONHASHSEED" in (env or {}):
        return started(*arguments, env=env, check=check, cwd=cwd, module=["tests.forks", "corpusmill"])
    result = launch(1, "corpusmill", *words, env={"COLUMNS": "80", **(env or {})}, cwd=cwd, preload=preload)
    return checked(result, words, check)


def started(
    *arguments: str | Path, env: dict[str, str] | None = None, check: bool = True, cwd: Path = ROOT,
    module: Sequence[str] = ("corpusmill",),
) -> Finished | subprocess.CompletedProcess[str]:  # fmt: skip
    """The finished process of `corpusmill ARGUMENTS`, of an interpreter of its own; its output as text."""
    command = [sys.executable, "-m", *module, *map(str, arguments)]
    environment = {
        **os.environ,
        "PYTHONPATH": IMPORT_PATH,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
        **(env or {}),
    }
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=cwd, stdin=subprocess.DEVNULL
    )
    return checked(result, command, check)


def checked(
    result: Finished | subprocess.CompletedProcess[str], command: list[str], check: bool
) -> Finished | subprocess.CompletedProcess[str]:
    if check and result.returncode != 0:
        raise AssertionError(
            f"{' '.join(command)}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        )
    return result


def small_corpus(folder: Path) -> Path:
    """About 2 MB of the example corpus: whole small sources, the beginnings of the others."""
    (folder / "books").mkdir(parents=True)
    for file in sorted((EXAMPLES / "books").rglob("*.txt"))[:25]:
        shutil.copy(file, folder / "books")
    with gzip.open(EXAMPLES / "speeches/sotu.jsonl.gz", "rb") as source:
        lines = source.readlines()[:12]
    with gzip.GzipFile(folder / "speeches.jsonl.gz", "wb", mtime=0) as out:
        out.writelines(lines)
    shutil.copy(EXAMPLES / "qa/faq.jsonl.zst", folder)
    shutil.copytree(EXAMPLES / "planted", folder / "planted")
    _first_records(EXAMPLES / "docs/docs.warc.gz", folder / "docs.warc.gz", 60)
    return folder


def _first_records(source: Path, target: Path, count: int) -> None:
    """The first `count` gzip members: the example WARC has one per record."""
    import zlib

    data = source.read_bytes()
    position = 0
    for _ in range(count):
        member = zlib.decompressobj(wbits=31)
        member.decompress(data[position:])
        position = len(data) - len(member.unused_data)
    target.write_bytes(data[:position])


def write_recipe(file: Path, corpus: Path, output: str | Path, extra: str = "") -> Path:
    file.write_text(RECIPE.format(corpus=corpus, output=output) + extra)
    return file


def published(run: Path) -> dict[str, bytes]:
    """Every file of a run but those that hold times: what must be the same bytes everywhere."""
    skip = ("manifest.json", "_manifest.json", "run.json", "inputs.json", "resources.html", "profile.json")
    return {
        str(f.relative_to(run)): f.read_bytes()
        for f in sorted(run.rglob("*"))
        if f.is_file()
        and f.name not in skip
        and not {"parts", "units", "scratch"} & set(f.relative_to(run).parts)
    }


def difference(one: dict[str, bytes], two: dict[str, bytes]) -> list[str]:
    """Names of files that are not the same in both."""
    return [name for name in sorted({*one, *two}) if one.get(name) != two.get(name)]
