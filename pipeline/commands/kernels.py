"""Kernels that are compiled before they are needed: small recipes that use them, each in a process of its own.

Compilation is a matter of one core, and a run's first units all wait for the same kernels. Stages run by themselves, at the same time,
compile different ones; what two of them share the first compiles, and the other one waits for it (`common.kernel_compiler`).
"""

from __future__ import annotations

import html
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from corpusmill.common.costs import METER
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.pipeline.engine.runner import Run
from corpusmill.schemas.filter import rule_sets
from corpusmill.schemas.recipe import Recipe

TEMPLATES = Path(__file__).parent / "templates"
POLL = 0.05  # seconds


def compile_ahead(progress: Progress, stages: Collection[str] | None = None) -> bool:
    """Compile most of the kernels on all cores: those of a run of these stages with default options, or of any. Whether it was done:
    not on one core, nor for so little that it would not pay."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as place:
        folder = Path(place)
        chosen = [
            recipe
            for default, recipe in _parts(recipes(folder))
            if stages is None or (default and {"ingest", *stages}.issuperset(recipe["stages"]))
        ]
        cores = min(os.cpu_count() or 1, len(chosen))
        if cores < 2:
            return False
        files = []
        for number, recipe in enumerate(chosen):
            files.append(folder / f"part-{number}.yaml")
            files[-1].write_text(json.dumps(recipe), "utf-8")
        before = _children()
        with progress.phase("compiling kernels", len(files), done=False) as phase:
            _run_all(files, cores, phase.end)
        METER.add("compiling kernels", _children() - before)
    return True


def _run_all(files: list[Path], most: int, ended: Callable[[int], None]) -> None:
    """These recipes, so many at a time. One that fails leaves its kernels to the run that needs them, and which says why."""
    waiting = list(enumerate(files))
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                number, file = waiting.pop(0)
                command = [sys.executable, "-m", "corpusmill", "run", str(file), "--workers", "0", "--quiet"]
                output = ["--set", f"output={file.with_suffix('')}"]
                quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
                running[number] = subprocess.Popen([*command, *output], **quiet)
            time.sleep(POLL)
            for number in [number for number, process in running.items() if process.poll() is not None]:
                del running[number]
                ended(number)
    finally:
        for process in running.values():
            process.kill()
        for process in running.values():
            process.wait()


def _children() -> float:
    """CPU seconds of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def recipes(folder: Path) -> dict[str, dict[str, Any]]:
    """Recipes of the starter's documents that use every kernel between them, by what they are for."""
    documents = folder / "documents.jsonl"
    documents.write_bytes((TEMPLATES / "documents.jsonl").read_bytes())
    texts = [json.loads(line)["text"] for line in documents.read_text("utf-8").splitlines()]
    text = texts[0]
    # What the starter lacks: a long page, a near copy with lines to cut, marks of wrong decoding, other digits.
    page = "".join(f"<p>{html.escape(part)}</p>" for part in text.split("\n")) + 1600 * "<b>.</b> "
    (folder / "page.html").write_text(f"<html><body><article>{page}</article></body></html>", "utf-8")
    odd = [
        f"{text}\nPlease enable JavaScript to see this page.\nRead more...\nSo it was.[12]",
        f"{texts[1]}\nA cafÃ© with a viewâ€¦ Call +٢٠ ٢ ٢٣٤٥ ٦٧٨٩ or +20 2 2345 6789.",
    ]
    (folder / "odd.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in odd), "utf-8")
    evals = folder / "evals.jsonl"
    evals.write_text(json.dumps({"question": " ".join(text.split()[:30]), "answer": "none"}) + "\n", "utf-8")
    files = [str(folder / name) for name in ("documents.jsonl", "page.html", "odd.jsonl")]
    common = {
        "name": "warmup", "sources": {"documents": {"paths": files}}, "tokenizer": {"vocab_size": 512},
        "split": {"validation_share": 0.1, "min_documents": 2}, "decontaminate": {"against": [str(evals)]},
    }  # fmt: skip
    runs: dict[str, dict[str, Any]] = {
        "a run": {"shard": {"format": "both", "block_tokens": 1024}},
        "other options": {
            "filter": {"rules": _rule_sets(), "cut_lines": True},
            "dedup": {
                "url": True, "normalized": True, "containment": 0.8, "shingle": "char", "store_signatures": True,
                "lines": {"unit": "line"}, "substrings": {"min_tokens": 20},
            },
            "decontaminate": {"against": [str(evals)], "action": "cut", "span": "window"},
            "shard": {"block_tokens": 1024}, "tokenizer": {"vocab_size": 512, "model": "unigram"},
        },
        "datatrove": {
            "stages": ["ingest", "dedup"], "dedup": {"preset": "datatrove", "lines": {"unit": "sentences"}},
        },
    }  # fmt: skip
    return {label: {**common, **changes} for label, changes in runs.items()}


def _parts(whole: dict[str, dict[str, Any]]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """(whether its kernels are those of default options, recipe) of a stage or two each, the longest first."""
    first, other, datatrove = whole.values()
    yield True, {**first, "stages": ["ingest", "redact"]}
    yield True, {**first, "stages": ["ingest", "filter"]}
    yield True, {**first, "stages": ["ingest", "split", "tokenizer", "shard"]}
    yield True, {**first, "stages": ["ingest", "dedup"]}
    yield False, {**other, "stages": ["ingest", "dedup"]}
    yield False, {**first, "stages": ["ingest", "decontaminate"]}
    yield False, {**other, "stages": ["ingest", "filter"]}
    yield False, {**other, "stages": ["ingest", "split", "tokenizer"]}
    yield False, datatrove


def run(recipe: dict[str, Any], folder: Path, then_look: bool = False) -> None:
    """A run without workers; afterwards, if wanted, what looks into its shards."""
    from corpusmill.pipeline.inspect.lineage.find import Finder
    from corpusmill.pipeline.inspect.lineage.shards import parse
    from corpusmill.pipeline.inspect.lineage.trace import Tracer, shards_of
    from corpusmill.pipeline.inspect.verify import verify

    checked, place, progress = Recipe.model_validate(recipe), Folder(str(folder)), Progress(quiet=True)
    with Workers(checked.cluster.model_copy(update={"workers": 0}), None, progress) as scheduler:
        Run(checked, place, scheduler, progress).execute()
        if then_look:
            verify(place, scheduler)
            shards, places = shards_of(place.url, progress.log)
            (found,) = Finder(shards, places).find("with-contact", None, None)
            list(Tracer(shards, places).trace(parse(found.places[0].address)))


def _rule_sets() -> list[str]:
    """The rule sets that need no lists of the user's own, and would not remove every text; `conversation` has no kernels."""
    return [name for name in rule_sets() if name not in ("c4_badwords", "conversation", "url")]
