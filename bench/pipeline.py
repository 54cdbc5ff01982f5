"""The quick-start recipe stage by stage on one core: MB/s, documents/s, peak memory of each stage.

Each stage runs in a process of its own, in this process' place of workers (`--workers 0`), over what the
stages before it published; an extra run with nothing to do measures what starting costs, which is taken off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECIPE = "configs/recipes/quickstart.yaml"
STAGES = ["ingest", "filter", "dedup", "redact", "split", "tokenizer", "shard", "report"]


def run(stages: list[str], output: str) -> tuple[float, float, dict[str, Any]]:
    """(CPU seconds, peak MiB, result) of one process that brings `output` up to `stages`."""
    command = [
        sys.executable, "-m", "corpusmill", "run", RECIPE, "--workers", "0", "--quiet", "--json",
        "--set", f"output={output}", "--set", f"stages=[{', '.join(stages)}]", "--set", "report.card=null", "--replace",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
        out.seek(0)
        result = json.loads(out.read())
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, result


def measure() -> dict[str, dict[str, float]]:
    """stage -> CPU seconds, MB/s per core, documents/s, peak MiB."""
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / "run")
        text = documents = 0
        for number, stage in enumerate(STAGES, 1):
            cpu, peak, result = run(STAGES[:number], output)
            idle, _, _ = run(STAGES[:number], output)
            counts = (
                result["stages"][stage]["counts"]
                if stage in ("ingest", "filter", "dedup", "redact")
                else None
            )
            if counts:
                text = counts["bytes_in"] if stage != "ingest" else counts["bytes_kept"]
                documents = counts["docs_in"]
            else:
                last = result["stages"]["redact"]["counts"]
                text, documents = last["bytes_kept"], last["kept"]
            seconds = max(cpu - idle, 1e-3)
            figures[stage] = {
                "documents": documents, "MB": text / 1e6, "cpu_s": seconds, "MB_per_s": text / 1e6 / seconds,
                "documents_per_s": documents / seconds, "peak_MiB": peak,
            }  # fmt: skip
    return figures


def main() -> None:
    print("The quick start's corpus, one core; compile and import times included, start-up taken off.\n")
    print("| stage | documents | MB | CPU s | MB/s per core | documents/s | peak memory MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for stage, row in measure().items():
        print(
            f"| {stage} | {row['documents']:,.0f} | {row['MB']:.2f} | {row['cpu_s']:.1f} | {row['MB_per_s']:.2f}"
            f" | {row['documents_per_s']:,.0f} | {row['peak_MiB']:,.0f} |"
        )


if __name__ == "__main__":
    main()
