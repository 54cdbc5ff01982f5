"""Run every bench in a process of its own and write what they printed to bench/RESULTS.md. All of them take hours: an
interrupted run is resumed by the same command: what is measured already is not measured again, unless its code or the libraries have
changed. Each section names its machine."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from bench._unfinished import FILE, Unfinished

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
# What the benches share: no benches themselves.
HELPERS = {"corpus", "dedup_run", "labelled", "natural", "object_store", "peers", "plain_loop"}
WITH_OPTIONS = {"chaos", "decisions", "fuzz", "learning", "serve_soak", "whole_run", "whole_scale"}
BENCHES = sorted(f.stem for f in HERE.glob("*.py") if not f.stem.startswith("_") and f.stem not in HELPERS)
INTRODUCTION = """\
# Measured

Written by `make bench`, never by hand. Machines are noisy: read ratios, measured in one run on one input,
before absolute figures. MB are 10^6 bytes of UTF-8 text; "per core" is per second of CPU time.
"""


def machine() -> str:
    """The machine in one line, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pyarrow", "numba", "torch"))
    return f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GiB, Python {platform.python_version()}, {packages}"


def replace(name: str, section: str) -> None:
    """Put a section of one bench into RESULTS.md; a new one behind those that come before it in the alphabet."""
    start, *there = RESULTS.read_text(encoding="utf-8").split("\n## ")
    others = [one for one in there if not one.startswith(f"{name}\n")]
    found = sorted([*others, section.removeprefix("## ")], key=lambda one: one.partition("\n")[0])
    RESULTS.write_text("\n## ".join([start, *found]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"one or more of: {', '.join(BENCHES)} (default: all)")
    parser.add_argument(
        "--write",
        action="store_true",
        help="replace the sections of these names in bench/RESULTS.md, and leave the others",
    )
    parser.epilog = (
        f"Options behind the name of {', '.join(sorted(WITH_OPTIONS))} are its own (--help shows them)."
    )
    single = sys.argv[1:2][0] if sys.argv[1:2] else ""
    options = sys.argv[2:] if single in WITH_OPTIONS and all(o.startswith("-") for o in sys.argv[2:3]) else []
    given = parser.parse_args([single] if options else None)
    names = given.names
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no such bench: {', '.join(unknown)}; there are: {', '.join(BENCHES)}")
    sections, failed = dict[str, str](), []
    whole = None if names else Unfinished(BENCHES, FILE)
    if whole is not None and whole.sections:
        sections.update(whole.sections)
        print(
            f"resuming an interrupted run; measured already: {', '.join(sections)} (to start again, delete {FILE})",
            file=sys.stderr,
        )
    for name in names or [name for name in BENCHES if name not in sections]:
        print(f"bench {name} ...", file=sys.stderr, flush=True)
        start, when = time.monotonic(), time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        command = [sys.executable, "-c", f"from bench.{name} import main; main()", *options]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent)
        seconds = time.monotonic() - start
        body = result.stdout.strip()
        print(body, flush=True)
        if result.returncode:
            failed.append(name)
            body = f"**failed** with exit code {result.returncode}\n\n{body}".strip()
        sections[name] = (
            f"## {name}\n\n`python -m bench {name}` ({when}, {seconds:.0f} s), on: {machine()}\n\n{body}\n"
        )
        if given.write and names:
            replace(name, sections[name])
        if whole is not None and not result.returncode:
            whole.add(name, sections[name])
    if whole is not None:
        text = "\n".join([INTRODUCTION, *(sections[name] for name in BENCHES)])
        RESULTS.write_text(text, encoding="utf-8")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if whole is not None:
        FILE.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
