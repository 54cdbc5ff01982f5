"""From the quick start's model to one that answers in a style: docs/after-pretraining.md, command by command."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.after_pretraining import PAGE, filled, part_of, read, right, walk, workplace
from tests.e2e.test_quickstart import quickstart  # noqa: F401 (a fixture)
from tests.forks import launch


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_can_be_followed(
    quickstart_run: Path,
    quickstart: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """On a base that was trained for a tenth of the quick start's steps: the style is learnt all the same."""
    folder = workplace(tmp_path.resolve())
    (folder / "runs/quickstart").mkdir(parents=True)
    for name in ("train", "shards", "tokenizer"):
        source = quickstart / name if name == "train" else quickstart_run / name
        (folder / "runs/quickstart" / name).symlink_to(source)
    page = PAGE.read_text(encoding="utf-8")
    done = list(walk(page, folder, forked))
    shares = [float(share) for share in kept("".join(one.output for one in done))]
    before, chat, preferences = shares
    assert before <= 0.2 < 0.7 <= chat
    assert preferences >= chat - 0.1
    last = json.loads((folder / "runs/quickstart/preferences/metrics.jsonl").read_text().splitlines()[-1])
    assert last["validation_preference"]["pairs"]["accuracy"] > 0.95
    assert right(read(folder / "before.jsonl")) == 0 < right(read(folder / "chat.jsonl"))
    written = filled(page, done, folder)
    assert len(kept(written)) == 3
    assert filled(written, done, folder) == written  # written again, it is the same
    assert str(folder) not in written


def forked(words: Sequence[str], folder: Path, together: bool) -> subprocess.CompletedProcess[str]:
    """`corpusmill WORDS` in a process that has PyTorch imported."""
    done = launch(1, "corpusmill", *words, cwd=folder, env={"COLUMNS": "80"})
    output = done.stdout + done.stderr if together else done.stdout
    return subprocess.CompletedProcess(words, done.returncode, output, done.stderr)


def kept(text: str) -> list[str]:
    """Of each table of a style guide's rules, the share that keeps all."""
    return re.findall(r"\| all rules +\| +\| (\d\.\d+)", text)


def test_the_page_holds_the_outputs() -> None:
    """Those of the last `python -m bench after_pretraining`, of each of the page's commands that has a block for them."""
    page = PAGE.read_text(encoding="utf-8")
    assert "```text\n```" not in page
    assert len(kept(page)) == 3


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (None, "a\n\nTitle: x\n\n| t |\n\nz\n"),
        ("last 1 lines", "z\n"),
        ('table "Title"', "Title: x\n\n| t |\n"),
    ],
)
def test_a_page_may_show_a_part_of_an_output(part: str | None, shown: str) -> None:
    assert part_of("\na\n\nTitle: x\n\n| t |\n\nz\n\n", part) == shown
