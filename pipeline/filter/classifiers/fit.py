"""The training itself, in a process of its own: `python -m pipeline.filter.classifiers.fit < options.json`.

With one thread, fastText 0.9 gives random values to the first tenth of its input matrix only; the rest holds
whatever the memory held. A young process whose large blocks come straight from the system, and so are zero,
makes the same model every time; in a process that has worked before, training may end in "Encountered NaN".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from schemas.errors import WorkError

# glibc: blocks from 64 KiB on are always mapped anew, the C library's arenas never grow by them.
_FRESH_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_MMAP_MAX_": "1000000",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}

# Memory that was not zero after all shows as "Encountered NaN": another process is another chance.
ATTEMPTS = 5


def fit(source: Path, target: Path, train: dict[str, Any], quantize: dict[str, Any]) -> None:
    """Train on the labelled lines of `source`, quantise, save at `target`.

    `train` and `quantize` are fastText's own options. Raises `WorkError` with fastText's reason.
    """
    options = {"source": str(source), "target": str(target), "train": train, "quantize": quantize}
    environment = {**os.environ, **_FRESH_MEMORY, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    said: list[str] = []
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [sys.executable, "-m", "pipeline.filter.classifiers.fit"],
            input=json.dumps(options).encode(), env=environment, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode == 0 and target.exists():
            return
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
    raise WorkError(f"fastText could not train in {ATTEMPTS} attempts: {said[-1]}")


def _main() -> None:
    from pipeline.filter.classifiers.fasttext_model import fasttext

    options = json.loads(sys.stdin.buffer.read())
    module = fasttext()
    model = module.train_supervised(input=options["source"], thread=1, verbose=0, **options["train"])
    model.quantize(input=options["source"], thread=1, verbose=0, **options["quantize"])
    model.save_model(options["target"])


if __name__ == "__main__":
    _main()
