"""The trainer on a GPU: tokens/s, MFU and peak memory of models of 124 M to 1.5 B, beside a plain compiled PyTorch loop; peak
memory of other configs beside the estimate; and which of the ten checks of tests/gpu pass there.

Needs torch and numpy alone. Each case and check runs in a process of its own, and what is measured is kept in a file after
each, so that several short runs add up:

    python -m bench.train_gpu --models 124m,350m --json a.json
    python -m bench.train_gpu --models 1.5b --cases bf16,plain,fp8 --json b.json
    python -m bench.train_gpu --from a.json b.json --json bench/train_gpu.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import _bare, _gpu_checks, _gpu_memory
from bench._gpu_models import MODELS, Case, estimate

HERE = Path(__file__).resolve().parent
KEPT = HERE / "train_gpu.json"  # what was measured where there was a GPU
CASES: dict[str, dict[str, Any]] = {
    "bf16": {}, "plain": {"loop": "plain"}, "cudnn": {"attention": "cudnn"}, "fp8": {"precision": "fp8"},
    "muon": {"optimizer": "muon"}, "loader": {"data": "loader"}, "eager": {"compile": ""},
    "torchtitan": {"loop": "torchtitan"},
}  # fmt: skip
NAMES = {
    "bf16": "train, bf16, AdamW", "plain": "plain PyTorch, compiled whole, bf16, AdamW",
    "cudnn": "train, cuDNN's attention first", "fp8": "train, fp8, AdamW", "muon": "train, bf16, Muon",
    "loader": "train, from the loader", "eager": "train, not compiled", "torchtitan": "torchtitan 0.2's model in the plain loop",
}  # fmt: skip
ENOUGH = 45.0  # seconds left under which no case is begun
GIB = 2**30


def measure(
    models: list[str], names: list[str], options: dict[str, Any], until: float, file: Path | None
) -> list[dict[str, Any]]:
    """A row for each model and case, in order; `until` is a time of `time.monotonic`."""
    rows = read([file]) if file and file.exists() else []
    for model in models:
        micro = next((r.get("micro") for r in rows if _key(r) == (model, "bf16")), None)
        for name in names:
            case = Case(model, **{**options, **CASES[name]})
            if name == "eager":  # for its memory: the smallest shows it as well
                case = case._replace(micro=MODELS[model].micro[0])
            elif name != "bf16":
                case = case._replace(micro=micro)
            if case.compile and "compile" in options:
                case = case._replace(compile=options["compile"])
            row = alone(case, until - time.monotonic())
            micro = row.get("micro", micro) if name == "bf16" else micro
            kernels = row.pop("kernels", [])
            row = {"case": name, **case._asdict(), **row}
            rows = merged(rows, [row])
            print(f"{model} {name}: {described_case(row)}", file=sys.stderr, flush=True)
            for kernel, share, spent in kernels:
                print(f"  {share:6.1%} {spent:9.2f} ms  {kernel}", file=sys.stderr)
            save(rows, file)
    return rows


def check(names: list[str], until: float, file: Path | None, stand_in: bool = False) -> list[dict[str, Any]]:
    """A row for each check of tests/gpu."""
    rows = read([file]) if file and file.exists() else []
    rows = merged(rows, _gpu_checks.measure(names, until, stand_in))
    save(rows, file)
    return rows


def save(rows: list[dict[str, Any]], file: Path | None) -> None:
    """All rows, in place of the file's, if there is a file."""
    if file:
        file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def alone(case: Case, seconds: float) -> dict[str, Any]:
    """A case measured in its own process."""
    if seconds < ENOUGH:
        return {"missing": "no time was left (--budget)"}
    command = [sys.executable, "-m", "bench._gpu_case", json.dumps(case._asdict())]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=HERE.parent,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return {"missing": f"not done after {seconds:.0f} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        print(done.stderr[-4000:], file=sys.stderr)
        return {"missing": f"failed: {last[:200]}"}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def read(files: list[Path]) -> list[dict[str, Any]]:
    """The rows of files, a later one in place of an earlier one of the same model and case."""
    rows: list[dict[str, Any]] = []
    for file in files:
        rows = merged(rows, json.loads(file.read_text(encoding="utf-8")))
    return rows


def merged(rows: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`more` in place of rows of the same model and case; a row without figures is in nobody's place."""
    by_name = {_key(row): row for row in rows}
    for row in more:
        key = _key(row)
        if "missing" not in row or key not in by_name:
            by_name.pop(key, None)
            by_name[key] = row
    return list(by_name.values())


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    kind = next((name for name in ("check", "memory") if name in row), None)
    return (kind, row[kind]) if kind else (row["model"], row["case"])


def described_case(row: dict[str, Any]) -> str:
    if "missing" in row:
        return f"not measured: {row['missing']}"
    return f"{row['tokens_per_second']:,.0f} tokens/s, MFU {percent(row['mfu'])}, micro-batch {row['micro']}"


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown: in the order of the models, each beside the plain loop of its model."""
    order = list(MODELS), list(CASES)
    rows = sorted(
        (row for row in rows if "case" in row),
        key=lambda row: (order[0].index(row["model"]), order[1].index(row["case"])),
    )
    plain = {
        row["model"]: row["tokens_per_second"]
        for row in rows
        if row["case"] == "plain" and "missing" not in row
    }
    lines = [
        "| model | loop | micro-batch | tokens/s | MFU | times plain | peak GiB | estimated GiB (peak is) |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        start = f"| {row['model']} | {NAMES[row['case']]} |"
        if "missing" in row:
            lines.append(f"{start} not measured: {row['missing']} | | | | | |")
            continue
        times = f"{row['tokens_per_second'] / plain[row['model']]:.3f}" if row["model"] in plain else ""
        case = Case(**{name: row[name] for name in Case._fields})
        peak, guess = row["peak_bytes"], estimate(case, row["micro"])
        off = f"{guess / GIB:.1f} ({peak / guess - 1:+.1%})" if peak else f"{guess / GIB:.1f}"
        lines.append(
            f"{start} {row['micro']} x {row['length']} | {row['tokens_per_second']:,.0f} | {percent(row['mfu'])} | {times} |"
            f" {peak / GIB:.1f} | {off} |"
        )
    return lines


def described(rows: list[dict[str, Any]]) -> str:
    """On what, and what the figures are."""
    from corpusmill.train.model.flops import MFU_FORMULA

    found = [row for row in rows if "missing" not in row and "case" in row]
    if not found:
        return "Nothing was measured."
    where = ", ".join(sorted({f"{row['machine']} (PyTorch {row['torch']})" for row in found}))
    steps = "; ".join(
        f"{name}: {size.rows} x {size.length}"
        for name, size in MODELS.items()
        if any(row["model"] == name for row in found)
    )
    return (
        f"{where}. Models in Llama's form with heads of 64, a tied head and a vocabulary of 50,257; sequences x tokens of a step:"
        f" {steps}. Random tokens in the device's memory unless it says from the loader; float32 weights under autocast. Layers and"
        " loss are compiled one by one, the plain loop (bench/_plain_gpt.py) as a whole; its micro-batch, as that of all"
        " cases of a model, is the fastest found for `train, bf16`. Medians of steps, each waited for."
        f" MFU = {MFU_FORMULA}; the peak is the maker's, dense (989e12 for H100 and H200). Peak memory is what PyTorch had allocated"
        " at most, beside what `corpusmill estimate` computes."
    )


def main() -> None:
    """Print Markdown; measure where there is a GPU."""
    parser = argparse.ArgumentParser(prog="python -m bench.train_gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="124m,350m,774m,1.5b", help="of these, with commas")
    parser.add_argument("--cases", default=",".join(CASES), help="of these, with commas")
    parser.add_argument(
        "--checks", default=",".join(_gpu_checks.NAMES), help="of tests/gpu, with commas; empty: none"
    )
    parser.add_argument(
        "--memory",
        default=",".join(_gpu_memory.CASES),
        help="of bench/_gpu_memory.py, with commas; empty: none",
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of measuring, each case")
    parser.add_argument(
        "--budget", type=float, default=570.0, help="seconds in all; what is not done then is left out"
    )
    parser.add_argument("--json", type=Path, help="file of rows: those in it stay, new ones are added")
    parser.add_argument(
        "--from", dest="files", type=Path, nargs="+", help="measure nothing, put these together"
    )
    parser.add_argument(
        "--profile", action="store_true", help="also say on stderr which kernels a step's time goes to"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny shapes on the CPU, through the same code")
    given = parser.parse_args()
    _bare.stand_in()
    models, names, checks, memory = (
        [n for n in text.split(",") if n] for text in (given.models, given.cases, given.checks, given.memory)
    )
    known = (*MODELS, *CASES, *_gpu_checks.NAMES, *_gpu_memory.CASES)
    unknown = [name for name in (*models, *names, *checks, *memory) if name not in known]
    if unknown:
        parser.error(
            f"not known: {', '.join(unknown)} (models: {', '.join(MODELS)}; cases: {', '.join(CASES)};"
            f" checks: {', '.join(_gpu_checks.NAMES)}; memory: {', '.join(_gpu_memory.CASES)})"
        )
    rows, until = [], time.monotonic() + given.budget
    if given.files:
        rows = read(given.files)
        save(rows, given.json)
    elif given.smoke:
        rows = check(checks, until, given.json, stand_in=True)
        options = {"device": "cpu", "compile": "eager", "seconds": 0.05, "profile": given.profile}
        rows = merged(rows, measure(["tiny"], names, options, until, given.json))
    elif _cuda():
        rows = check(checks, time.monotonic() + given.budget / 2, given.json)
        rows = merged(rows, _gpu_memory.measured(memory, until - time.monotonic()))
        save(rows, given.json)
        options = {"seconds": given.seconds, "profile": given.profile}
        rows = merged(rows, measure(models, names, options, until, given.json))
    else:
        print("Not measured: no CUDA device.")
        if not KEPT.exists():
            return
        print("What was measured where there was one (`bench/train_gpu.json`):\n")
        rows = read([KEPT])
    print(described(rows) + "\n")
    for lines in (table(rows), _gpu_memory.table(rows)):
        print("\n".join(lines) + "\n")
    found = [row for row in rows if "check" in row]
    if found:
        print("\n".join(_gpu_checks.table(found)))
    if any(row["outcome"] == "failed" for row in found):
        sys.exit(1)


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
