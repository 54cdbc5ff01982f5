"""The two commands of the README in a fresh clone: how long they take, how much disk, what comes out; and what comes out of
the same training with other vector instructions, as on another kind of processor.

Written into README.md, between its markers. The clone is of the last commit, its `.venv` is made again (packages may come
from pip's cache).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corpusmill.train.commands.evaluation import bits_table

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
# What torch's own kernels use on this processor -> what they are to use instead (ATEN_CPU_CAPABILITY).
OTHERS = {"AVX512": "avx2", "AVX2": "default"}
BEGIN, END = "<!-- measured by bench/quickstart.py -->", "<!-- end -->"


@contextmanager
def fresh_clone() -> Iterator[Path]:
    """A clone of the last commit, with the folder of test data beside it where this checkout has one."""
    folder = Path(tempfile.mkdtemp())
    try:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "clone")], check=True)
        if (ROOT.parent / "shared").is_dir():
            (folder / "shared").symlink_to(ROOT.parent / "shared")
        yield folder / "clone"
    finally:
        shutil.rmtree(folder)


def timed(clone: Path, *target: str) -> float:
    """Seconds of `make TARGET` in the clone; its output goes to stderr."""
    start = time.monotonic()
    subprocess.run(
        ["make", f"PYTHON={base_python()}", *target],
        check=True,
        cwd=clone,
        stdout=sys.stderr,
        env=environment(),
    )
    return time.monotonic() - start


def environment() -> dict[str, str]:
    """Ours, without what names this checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}


def base_python() -> str:
    """The interpreter that this environment was made from."""
    return str(Path(sys.base_prefix) / f"bin/python3.{sys.version_info.minor}")


def size(folder: Path) -> float:
    """MB on disk."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink()) / 1e6


def measure() -> dict[str, Any]:
    """Seconds and MB of `make setup` and `make quickstart` (first, second)."""
    with fresh_clone() as clone:
        figures: dict[str, Any] = {"setup_s": timed(clone, "setup"), "setup_mb": size(clone / ".venv")}
        figures |= {"first_s": timed(clone, "quickstart"), "run_mb": size(clone / "runs")}
        figures["second_s"] = timed(clone, "quickstart")
        figures["evaluation"] = evaluation(clone / "runs/quickstart/train")
        figures |= {"here": capability(), "other": OTHERS.get(capability())}
        if figures["other"]:
            figures["otherwise"] = trained_again(clone, figures["other"])
    return figures


def capability() -> str:
    """The vector instructions that torch's kernels use here."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def evaluation(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "evaluation.json").read_text())
    return found


def trained_again(clone: Path, instructions: str) -> dict[str, Any]:
    """The evaluation of the quick start's training, run by torch kernels with these vector instructions."""
    output = f"runs/quickstart/train-{instructions}"
    for command in ("train", "evaluate"):
        subprocess.run(
            [".venv/bin/corpusmill", command, "configs/train/quickstart.yaml", "--set", f"output={output}"],
            check=True, cwd=clone, stdout=sys.stderr, env={**environment(), "ATEN_CPU_CAPABILITY": instructions},
        )  # fmt: skip
    return evaluation(clone / output)


def spread(figures: dict[str, Any]) -> list[str]:
    """How far the losses are from those of another kind of processor, as Markdown; nothing where that was not measured."""
    if "otherwise" not in figures:
        return []
    here, other = (figures[name]["sources"] for name in ("evaluation", "otherwise"))
    apart = max(abs(other[name]["loss"] - row["loss"]) for name, row in here.items())
    found = ", ".join(f"{name} {other[name]['loss']:.2f}" for name in here)
    return [
        "",
        "The same kind of processor and version of torch give the same digits again, in any number of threads. Others round"
        f" differently, which training amplifies: torch's kernels use {figures['here']} instructions here, and the same run with"
        f" {figures['other'].upper()} ones ends up to {apart:.2f} nats away ({found}). So may yours.",
    ]


def lines(figures: dict[str, Any]) -> list[str]:
    """The figures as Markdown."""
    table = [
        "| command, in a fresh clone on this machine | time | disk |",
        "|---|---:|---:|",
        f"| `make setup` (part of the first `make quickstart`) | {figures['setup_s']:.0f} s | {figures['setup_mb']:,.0f} MB |",
        f"| `make quickstart`, after that | {figures['first_s']:.0f} s | {figures['run_mb']:,.0f} MB |",
        f"| `make quickstart`, a second time | {figures['second_s']:.0f} s | |",
    ]
    table += [
        "",
        "What the model learned, in nats per token on each source's validation split:",
        "",
        "| source | model | unigram model | unigram model of that source |",
        "|---|---:|---:|---:|",
    ]
    for name, row in figures["evaluation"]["sources"].items():
        own = row.get("unigram_source")
        table.append(
            f"| {name} | {row['loss']:.2f} | {row['unigram']['loss']:.2f} | {format(own['loss'], '.2f') if own else ''} |"
        )
    table += [
        "",
        "The same in bits per byte, beside n-gram models of token ids (interpolated Witten-Bell) of the tokens that the model was"
        " trained on (*seen*) and of all train tokens:",
        "",
        *ngram_table(figures["evaluation"]),
    ]
    return table


def ngram_table(evaluation: dict[str, Any]) -> list[str]:
    """Bits per byte of the model and of n-gram models, as Markdown."""
    head, *rows = bits_table(evaluation)
    rule = "|---|" + "---:|" * (len(head) - 1)
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def main() -> None:
    """Print the tables, and write them into the README."""
    from bench.__main__ import machine

    figures = measure()
    text = "\n".join([*lines(figures), *spread(figures), "", f"Machine: {machine()}."])
    print(text)
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
