"""The pages of the documentation: links lead somewhere, commands parse, searches find, and the site can be built."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    [^\n]*\n?)+", re.MULTILINE)
# Relative to docs/, pages that exist only in the site.
GENERATED = {
    "reference/commands.md",
    "reference/recipe.md",
    "reference/training.md",
    "reference/api.md",
    "index.md",
}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(text: str) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^(?:    )[^\n]*$", "", FENCE.sub("", text), flags=re.MULTILINE))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings."""
    found: list[str] = []
    for heading in re.findall(
        r"^#{1,6} (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    ):
        slug = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip().lower()
        slug = re.sub(r"[\s]+", "-", slug)
        found.append(slug)
    return frozenset(found)


def broken(page: Path, text: str) -> list[str]:
    """The relative links of a page that lead nowhere."""
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            if (
                not file.is_relative_to(ROOT / "docs")
                or file.relative_to(ROOT / "docs").as_posix() not in GENERATED
            ):
                wrong.append(target)
        elif anchor and anchor not in anchors(file):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_and_anchor_leads_somewhere(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_a_broken_link_would_be_found() -> None:
    page = ROOT / "docs/concepts.md"
    assert broken(page, "[a](dedup.md) [b](gone.md) [c](takedown.md#verify) [d](takedown.md#gone)") == [
        "gone.md", "takedown.md#gone",
    ]  # fmt: skip


# Commands


def code(text: str) -> list[str]:
    """Fenced blocks of shell or no language, and indented ones."""
    fenced = [body for language, body in FENCE.findall(text) if language in ("", "sh", "bash", "console")]
    return fenced + [
        re.sub(r"^    ", "", body, flags=re.MULTILINE) for body in INDENTED.findall(FENCE.sub("", text))
    ]


def command_lines(text: str) -> list[list[str]]:
    """The calls of `corpusmill` in a page's code, without comments."""
    found = []
    for block in code(text):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"^\$ ", "", line.strip())
            match = re.match(r"(?:[A-Z_]+=\S+ +)*(?:\.venv/bin/)?corpusmill (.*)", line)
            if match and "…" not in line and not re.search(r"\[\w*\]| \| |COMMAND|--?\w+\.\.\.", line):
                words = shlex.split(match[1], comments=True)
                ends = [i for i, word in enumerate(words) if word in (">", "2>", "&&", "&", ";", "|")]
                found.append(words[: ends[0]] if ends else words)
    return found


def wrong_command(words: list[str]) -> str | None:
    """What the command line has against a call; nothing is run."""
    import click

    command: Any = command_line()
    path = "corpusmill"
    try:
        while hasattr(command, "commands"):
            if not words or words[0].startswith("-"):
                return None  # options of the program itself
            path, step = f"{path} {words[0]}", words[0]
            if step not in command.commands:
                return f"{path}: no such command"
            command, words = command.commands[step], words[1:]
        command.make_context(path, [*words], resilient_parsing=False)
    except Exception as error:
        if isinstance(error, click.exceptions.ClickException) or hasattr(error, "format_message"):
            return f"{path}: {error}" if "does not exist" not in str(error) else None
        if type(error).__name__ == "Exit":
            return None
        raise
    return None


@cache
def command_line() -> Any:
    import typer.main

    from corpusmill.__main__ import build

    return typer.main.get_command(build())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_parses(page: Path) -> None:
    calls = command_lines(page.read_text(encoding="utf-8"))
    assert [found for call in calls if (found := wrong_command(call))] == []


def test_a_wrong_command_would_be_found() -> None:
    assert len(command_lines((ROOT / "README.md").read_text(encoding="utf-8"))) > 10
    assert wrong_command(["verify", "runs/x"]) is None
    assert "no such command" in str(wrong_command(["verfy", "runs/x"]))
    assert "--simlarity" in str(wrong_command(["dedup", "a", "b", "--simlarity", "0.8"]))
    assert "valid number" in str(wrong_command(["dedup", "a", "b", "--similarity", "nine"]))


# Architecture


def test_each_search_of_where_is_what_finds_its_file() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([^|]+) \| `([^`]+)` \| `([^`]+)` \|$", text.partition("## Where is what")[2], re.MULTILINE
    )
    assert len(rows) == 22
    folders = ("common", "schemas", "pipeline", "train", "ablate", "configs")
    files = {
        name(file): file.read_text(encoding="utf-8")
        for folder in folders
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".yaml")
    }
    for _, file, search in rows:
        assert [found for found, body in files.items() if search in body] == [file], search


def test_paths_of_the_architecture_page_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:common|schemas|pipeline|train|configs|tests|docs|bench)/[\w@./-]+)`", text)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


# Changing the model


def test_the_page_on_changing_the_model_names_what_there_is() -> None:
    """Each kind of change three files, the place in the module; every path; and each quoted line of code as it stands in its file."""
    text = (ROOT / "docs/change-the-model.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| [^|`]+ \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \|$", text, re.MULTILINE
    )
    assert len(rows) == 11
    for schema, module, place, test in rows:
        assert schema == "schemas/model.py" and test.startswith("tests/") and (ROOT / test).exists(), test
        assert f"{place}(" in (ROOT / module).read_text(encoding="utf-8"), (module, place)
    paths = set(re.findall(r"`((?:schemas|train|tests)/[\w./-]+)`", text))
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []
    quoted = [body.splitlines() for language, body in FENCE.findall(text) if language == "python"]
    assert len(quoted) == 4
    for first, *lines in quoted:
        there = (ROOT / first.removeprefix("# ")).read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if line not in there] == []


# Site


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("mkdocstrings") is None, reason="needs the packages of the extra `docs`"
)
def test_the_site_builds_without_a_warning_and_asks_nothing_of_the_net(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    assert "corpusmill dedup" in commands and "--similarity" in commands
    assert "dedup.similarity" in (site / "reference/recipe.html").read_text(encoding="utf-8")
    assert "grad_clip" in (site / "reference/training.html").read_text(encoding="utf-8")
    assert "StreamingTokens" in (site / "reference/api.html").read_text(encoding="utf-8")
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"?(https?:[^\" >]+)|<link[^>]*rel=\"?stylesheet[^>]*href=\"?(https?:)"
    )
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text(encoding="utf-8")), page
