"""`make wheel`: a wheel that brings the kernels' machine code along, so that its first run compiles nothing.

The code is for x86-64-v3 on Linux, this Python and this Numba; elsewhere a kernel is compiled at its first use, as from a clone.
`python -m tools.wheel FOLDER` compiles what `corpusmill warmup` does, for that processor, into a folder of its own, and has the wheel
built with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from corpusmill.common.kernel_code import PORTABLE

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "src/corpusmill/machine_code"  # `pyproject.toml` has it packed, and Git ignores it


def compile_kernels(folder: Path, uses: Sequence[str] = ("-m", "corpusmill", "warmup")) -> list[Path]:
    """The code of the kernels that Python, with these arguments, uses: its files below `folder`, as the package looks for them."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as cache:
        target = {"NUMBA_CPU_NAME": PORTABLE.name, "NUMBA_CPU_FEATURES": PORTABLE.features}
        environment = {**os.environ, **target, "CORPUSMILL_KERNEL_CACHE": cache}
        subprocess.run([sys.executable, *uses], env=environment, check=True)
        found = []
        for file in sorted(Path(cache).glob("*/*/*.code")):
            place = folder / file.relative_to(cache)
            place.parent.mkdir(parents=True, exist_ok=True)
            found.append(Path(shutil.copyfile(file, place)))
    return found


def main(folder: str) -> None:
    """Write the wheel into `folder`."""
    if PLACE.exists():
        shutil.rmtree(PLACE)
    try:
        files = compile_kernels(PLACE)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--wheel-dir", folder, str(ROOT)], check=True)
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)
    print(f"{len(files)} kernels for {PORTABLE.name} in the wheel in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
