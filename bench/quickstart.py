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
    environment = {
        name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")
    }
    start = time.monotonic()
    subprocess.run(
        ["make", f"PYTHON={base_python()}", *target],
        check=True,
        cwd=clone,
        stdout=sys.stderr,
        env=environment,
    )
    return time.monotonic() - start


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
            check=True, cwd=clone, stdout=sys.stderr, env={**os.environ, "ATEN_CPU_CAPABILITY": instructions},
        )  # fmt: skip
    return evaluation(clone / output)


def lines(figures: dict[str, Any]) -> list[str]:
    """The figures as Markdown."""
    table = [
        "| command, in a fresh clone on this machine | time | disk |",
        "|---|---:|---:|",
        f"| `make setup` (part of the first `make quickstart`) | {figures['setup_s']:.0f} s | {figures['setup_mb']:,.0f} MB |",
        f"| `make quickstart`, after that | {figures['first_s']:.0f} s | {figures['run_mb']:,.0f} MB |",
        f"| `make quickstart`, a second time | {figures['second_s']:.0f} s | |",
    ]
    sources = figures["evaluation"]["sources"]
    again = figures.get("otherwise", {}).get("sources", {})
    heads = ["model", *([f"model, with {figures['other']} kernels"] if again else [])]
    heads += ["unigram model", "unigram model of that source"]
    table += [
        "",
        "What the model learned, in nats per token on each source's validation split:",
        "",
        f"| source | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
    ]
    for name, row in sources.items():
        found = [row["loss"], *([again[name]["loss"]] if again else []), row["unigram"]["loss"]]
        own = row.get("unigram_source")
        cells = [format(loss, ".2f") for loss in found] + [format(own["loss"], ".2f") if own else ""]
        table.append(f"| {name} | {' | '.join(cells)} |")
    if again:
        apart = max(abs(again[name]["loss"] - row["loss"]) for name, row in sources.items())
        table += [
            "",
            "Training gives the same digits again on the same kind of processor with the same torch, in any number of threads."
            f" Others round differently, and training amplifies the last digit: here torch's kernels use {figures['here']}"
            f" instructions, and the same run with {figures['other']} ones ends up to {apart:.2f} nats away. So may yours.",
        ]
    return table


def main() -> None:
    """Print the tables, and write them into the README."""
    from bench.__main__ import machine

    text = "\n".join([*lines(measure()), "", f"Machine: {machine()}."])
    print(text)
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
