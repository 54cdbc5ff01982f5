"""The training itself, in a process of its own: `python -m corpusmill.pipeline.filter.classifiers.fit < options.json`.

With one thread, fastText 0.9 gives random values to the first tenth of its input matrix only (densematrix.cc, `uniform`:
a tenth a thread); the rest is what the memory held, which its aligned allocation does not clear. Here glibc clears it, so
that a training makes the same model every time; elsewhere it may end in "Encountered NaN".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from corpusmill.common.errors import WorkError

# glibc fills what it gives out with the inverse of this byte, so with zeros, and what is freed with the byte; except for
# small blocks of its per-thread cache, which is therefore off.
_ZEROED = {"MALLOC_PERTURB_": "255", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}

# Where memory is not cleared, "Encountered NaN" is a matter of chance, and another process another one.
ATTEMPTS = 5


def fit(source: Path, target: Path, train: dict[str, Any], quantize: dict[str, Any] | None) -> None:
    """Train on the labelled lines of `source`, quantise unless `quantize` is None, save at `target`.

    `train` and `quantize` are fastText's own options. Raises `WorkError` with fastText's reason.
    """
    options = {"source": str(source), "target": str(target), "train": train, "quantize": quantize}
    environment = {**os.environ, **_ZEROED, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    said: list[str] = []
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [sys.executable, "-m", "corpusmill.pipeline.filter.classifiers.fit"],
            input=json.dumps(options).encode(), env=environment, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode == 0 and target.exists():
            return
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
    raise WorkError(f"fastText could not train in {ATTEMPTS} attempts: {said[-1]}")


def _main() -> None:
    from corpusmill.pipeline.filter.classifiers.fasttext_model import fasttext

    options = json.loads(sys.stdin.buffer.read())
    module = fasttext()
    model = module.train_supervised(input=options["source"], thread=1, verbose=0, **options["train"])
    if options["quantize"] is not None:
        model.quantize(input=options["source"], thread=1, verbose=0, **options["quantize"])
    model.save_model(options["target"])


if __name__ == "__main__":
    _main()
