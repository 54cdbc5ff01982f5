"""The path of docs/after-pretraining.md, run from the quick start's corpus on: its outputs are written into the page.

The page is the source of the commands; `tests/e2e/test_after_pretraining.py` runs the same ones.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/after-pretraining.md"
BASE = (
    "corpusmill run configs/recipes/quickstart.yaml",
    "corpusmill train configs/train/quickstart.yaml",
)
# Commands, and the block of their output where the page shows it.
BLOCK = re.compile(
    r"```sh\n(?P<commands>.*?)```\n(?:\n<!-- output(?:: (?P<part>[^\n]*))? -->\n```text\n(?P<output>.*?)```\n)?",
    re.DOTALL,
)
ANSWERS = re.compile(r"(?P<mark><!-- answers: (?P<files>[^\n]*) -->\n)(?P<table>\n\|.*?\n(?=\n))?", re.DOTALL)
SHOWN = 10  # questions in the table of answers
LONGEST = 60  # characters of an answer in it


Run = Callable[[Sequence[str], Path, bool], "subprocess.CompletedProcess[str]"]


class Done(NamedTuple):
    """A command that has run: its output, and how long it took."""

    command: str
    output: str
    seconds: float


def commands(block: str) -> list[str]:
    """The commands of a block of shell, one a line."""
    return [line.strip() for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def interpreter(words: Sequence[str], folder: Path, together: bool) -> subprocess.CompletedProcess[str]:
    """`corpusmill WORDS` in a new interpreter; `together`: what it prints on stderr is part of its output."""
    return subprocess.run(
        [sys.executable, "-m", "corpusmill", *words], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip


def perform(command: str, folder: Path, run: Run = interpreter) -> Done:
    """Run `corpusmill ARGUMENTS [> FILE]` in `folder`. Raises `RuntimeError` with what it printed if it fails."""
    words = shlex.split(command)
    target = None
    if ">" in words:
        *words, _, target = words
    assert words[0] == "corpusmill", command
    start = time.monotonic()
    done = run(words[1:], folder, target is None)
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr or ''}")
    output = done.stdout.replace(f"{folder}/", "")
    if target:
        (folder / target).write_text(output, encoding="utf-8")
        output = ""
    return Done(command, output, time.monotonic() - start)


def environment() -> dict[str, str]:
    """Ours, for a terminal of 80 columns."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80"}


def workplace(folder: Path) -> Path:
    """`folder`, with what the page's commands read beside it."""
    for name in ("configs", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def walk(page: str, folder: Path, run: Run = interpreter) -> Iterator[Done]:
    """Run the page's commands in their order."""
    for block in BLOCK.finditer(page):
        for command in commands(block["commands"]):
            yield perform(command, folder, run)


def filled(page: str, done: list[Done], folder: Path) -> str:
    """The page with what its commands have printed."""
    outputs = {one.command: one.output for one in done}

    def block(match: re.Match[str]) -> str:
        if match["output"] is None:
            return match[0]
        text = "".join(outputs[command] for command in commands(match["commands"]))
        start = match.start("output") - match.start()
        end = match.end("output") - match.start()
        return match[0][:start] + part_of(text, match["part"]) + match[0][end:]

    def answers(match: re.Match[str]) -> str:
        return match["mark"] + "\n" + "\n".join(answers_table(folder, match["files"].split())) + "\n"

    return ANSWERS.sub(answers, BLOCK.sub(block, page))


def part_of(text: str, part: str | None) -> str:
    """What the page shows of an output: `last N lines`, `table "TITLE"` (its paragraph and the table below), or all of it."""
    text = text.strip("\n")
    if part and (found := re.fullmatch(r"last (\d+) lines", part)):
        text = "\n".join(text.splitlines()[-int(found[1]) :])
    elif part and (found := re.fullmatch(r'table "(.*)"', part)):
        paragraphs = text.split("\n\n")
        at = next(i for i, paragraph in enumerate(paragraphs) if paragraph.startswith(found[1]))
        text = "\n\n".join(paragraphs[at : at + 2])
    elif part:
        raise ValueError(f"{PAGE.name}: output: {part}: must be 'last N lines' or 'table \"TITLE\"'")
    return text + "\n"


def read(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def answers_table(folder: Path, files: list[str]) -> list[str]:
    """The first answers of several models side by side, and how many of all are right, as Markdown."""
    models = {Path(name).stem: read(folder / name) for name in files}
    some = next(iter(models.values()))
    rows = [["question", *models], ["---"] * (len(models) + 1)]
    for i, row in enumerate(some[:SHOWN]):
        rows.append([row["prompt"], *(cell(texts[i]["text"]) for texts in models.values())])
    rows.append([f"right, of {len(some)}", *(str(right(texts)) for texts in models.values())])
    return [f"| {' | '.join(row)} |" for row in rows]


def right(rows: list[dict[str, str]]) -> int:
    """How many texts are the answer, character for character."""
    return sum(row["text"].strip() == row["answer"] for row in rows)


def cell(text: str) -> str:
    """A text in one cell of a table."""
    text = re.sub(r"([|<>*_`\[\]\\])", r"\\\1", " ".join(text.split()))
    return text if len(text) <= LONGEST else text[:LONGEST].rstrip("\\") + " …"


def main() -> None:
    """Run the path, write the page, and print how long each command took."""
    from bench.__main__ import machine

    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = workplace(Path(name).resolve())
        base = [perform(command, folder) for command in BASE]
        done = list(walk(page, folder))
        PAGE.write_text(filled(page, done, folder), encoding="utf-8")
        models = {stem: read(folder / f"{stem}.jsonl") for stem in ("before", "chat", "preferences")}
    print(
        "The commands of docs/after-pretraining.md, whose outputs stand there; the first two are the quick start's.\n"
    )
    print("| command | s |\n|---|---:|")
    for one in (*base, *done):
        print(f"| `{one.command}` | {one.seconds:.0f} |")
    print(f"| after the quick start | {sum(one.seconds for one in done):.0f} |")
    counts = ", ".join(f"{stem} {right(rows)}" for stem, rows in models.items())
    print(f"\nRight answers, of {len(models['chat'])}: {counts}.\n\nMachine: {machine()}.")


if __name__ == "__main__":
    main()
