"""From raw text to shards: CPU and wall seconds of whole runs, all processes and their start counted, beside datatrove; where the
time goes; what a second worker, ten documents and a run with nothing to do cost.

    python -m bench whole_run [--mb 300] [--beside 10]

Beside datatrove both have the same documents, recipe and tokenizer, and one process each: lid.176, Gopher, C4 and FineWeb rules as
datatrove decides them, its MinHash, e-mail and IP addresses, token files. What each keeps is compared. The rest of the tables is our
default recipe with a tokenizer of 16,000 trained in the run. CPU seconds are those that the system counts for a process and
all that it started (`wait4`), beside what the run's own profile adds up to.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import yaml

from bench import corpus, natural
from bench.peers import DATATROVE, ONE_THREAD, ROOT, SCRIPTS, NotMeasured, environment
from corpusmill.schemas.profile import FILE, RunProfile

MEAN_BYTES = 3_000
FILES = 16
LID = ROOT / "pipeline/filter/models/lid.176.ftz"
# What its filters import beside the requirements of the other benches.
PEER = DATATROVE._replace(
    name="datatrove-whole",
    requirements=(
        *DATATROVE.requirements,
        "fasttext-numpy2-wheel==0.9.2",
        "fasteners==0.20",
        "orjson==3.13.0",
    ),
    script="datatrove_whole_run.py",
)
LIKE_DATATROVE: dict[str, Any] = {
    "stages": ["ingest", "filter", "dedup", "redact", "split", "tokenizer", "shard"],
    "filter": {
        "rules": ["gopher@datatrove", "fineweb@datatrove", "c4@datatrove"], "cut_lines": True,
        "language": {"keep": ["en"], "model": "lid.176"}, "toxicity": None, "quality": None, "quality_signals": None,
    },
    "dedup": {"preset": "datatrove"},
    "redact": {"kinds": ["email", "ip"], "everywhere": []},
}  # fmt: skip


class Spent(NamedTuple):
    """Of a command and all that it started."""

    cpu: float  # seconds
    wall: float
    out: str


def spent(command: list[str], **variables: str) -> Spent:
    """Raises `NotMeasured` if the command fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **variables})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - start
        out.seek(0)
        err.seek(0)
        if process.returncode:
            last = err.read().decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
            raise NotMeasured(f"it ended with {process.returncode}: {last[0][:200]}")
        return Spent(usage.ru_utime + usage.ru_stime, wall, out.read().decode())


class Ours(NamedTuple):
    """A run of ours."""

    cpu: float
    wall: float
    profile: RunProfile | None
    result: dict[str, Any]

    @property
    def memory(self) -> float:
        """Bytes at most of the driver and of all workers, each at its own peak."""
        used = [one["resources"]["actual"] for one in self.result["stages"].values() if one["resources"]]
        workers = len(self.profile.processes) - 1 if self.profile else 0
        return float(
            max(one["driver_bytes"] for one in used) + workers * max(one["worker_bytes"] for one in used)
        )


def ours(folder: Path, recipe: dict[str, Any], source: Path, out: Path, workers: int | None) -> Ours:
    """A run of `recipe` on the files of `source`; with nothing to do if it was done before."""
    file = folder / f"{out.name}.yaml"
    whole = {
        "name": "bench", "output": str(out), "sources": {"web": {"paths": [str(source)], "id_column": "name"}}, **recipe,
    }  # fmt: skip
    file.write_text(yaml.safe_dump(whole))
    command = [sys.executable, "-m", "corpusmill", "run", str(file), "--quiet", "--json"]
    done = spent(command + ([] if workers is None else ["--workers", str(workers)]))
    profile = out / FILE
    read = RunProfile.model_validate_json(profile.read_bytes()) if profile.exists() else None
    return Ours(done.cpu, done.wall, read, json.loads(done.out))


@contextlib.contextmanager
def prepared() -> Iterator[Path]:
    """A folder for runs during the block; kernels are compiled before it."""
    with tempfile.TemporaryDirectory() as name:
        spent([sys.executable, "-m", "corpusmill", "warmup"])
        yield Path(name)


def write(folder: Path, megabytes: float, scratch: Path, count: int = FILES) -> tuple[int, float]:
    """So many files of JSON Lines; (documents, MB of text)."""
    from corpusmill.common.storage import Folder

    made = corpus.write(Folder(scratch), int(megabytes * 1e6 / MEAN_BYTES), MEAN_BYTES)
    folder.mkdir(parents=True)
    files = [(folder / f"{number:02d}.jsonl").open("w", encoding="utf-8") for number in range(count)]
    number = 0
    for partition in made.partitions:
        for text in (
            pq.read_table(scratch / "documents" / f"{partition.name}.parquet", columns=["text"])
            .column("text")
            .to_pylist()
        ):
            # datatrove takes `id` for its own; the name comes back with what it keeps.
            files[number % count].write(
                json.dumps({"name": str(number), "text": text}, ensure_ascii=False) + "\n"
            )
            number += 1
    for file in files:
        file.close()
    return made.documents, made.megabytes


def trained(folder: Path, source: Path) -> Path:
    """A tokenizer of this text for both sides."""
    out = folder / "trained"
    recipe = {
        "stages": ["ingest", "split", "tokenizer"],
        "tokenizer": {"vocab_size": 16_000, "pre_tokenizer": "gpt2"},
    }
    ours(folder, recipe, source, out, 0)
    return out / "tokenizer/tokenizer.json"


def beside(folder: Path, megabytes: float) -> None:
    """The table beside datatrove, and what both decided."""
    source = folder / "beside"
    documents, size = write(source, megabytes, folder / "beside.parquet")
    tokenizer = trained(folder, source)
    out = folder / "like"
    recipe = {**LIKE_DATATROVE, "tokenizer": {"path": str(tokenizer)}}
    ours(folder, recipe, source / "00.jsonl", folder / "first", 0)  # compiles what the warm-up does not know
    mine = ours(folder, recipe, source, out, 0)
    print(
        f"{documents:,} documents, {size:.0f} MB of text in {FILES} files of JSON Lines, one process each.\n"
    )
    print("| tool | CPU s | CPU s a MB | s | documents kept |\n|---|---:|---:|---:|---:|")
    kept = set(_column(out / "redact/documents", "source_id"))
    print(
        f"| CorpusMill | {mine.cpu:.1f} | {mine.cpu / size:.3f} | {mine.wall:.1f} | {len(kept):,} |",
        flush=True,
    )
    try:
        python = environment(PEER.name, PEER.requirements)
        command = [
            str(python),
            str(SCRIPTS / PEER.script),
            str(source),
            str(folder / "theirs"),
            str(LID),
            str(tokenizer),
        ]
        theirs = spent(command, HF_HUB_OFFLINE="1", **ONE_THREAD)
    except NotMeasured as error:
        print(f"| {PEER.label} | not measured: {error} | | | |")
        return
    answer = json.loads(theirs.out.strip().splitlines()[-1])
    print(
        f"| {PEER.label} | {theirs.cpu:.1f} | {theirs.cpu / size:.3f} | {theirs.wall:.1f} | {len(answer['kept']):,} |"
    )
    print(f"\n{theirs.cpu / mine.cpu:.0f} times the CPU seconds, start of both included.")
    _decisions(kept, answer, out)


def _decisions(kept: set[str], answer: dict[str, Any], out: Path) -> None:
    """What both kept and removed, and by which step."""
    others = set(answer["kept"])
    ledger = [
        row
        for file in sorted((out / "ledger").glob("*.parquet"))
        for row in pq.read_table(file, columns=["source_id", "outcome", "stage", "rule"]).to_pylist()
    ]
    mine = {
        row["source_id"]: row["rule"] if row["stage"] == "filter" else row["stage"]
        for row in ledger
        if row["outcome"] != "kept"
    }
    print(
        f"\nKept by both {len(kept & others):,}, by CorpusMill alone {len(kept - others):,}, by datatrove alone"
        f" {len(others - kept):,}.\n"
    )
    print("| datatrove's step | it removes | CorpusMill removes of them | by rules of |\n|---|---:|---:|---|")
    for step, gone in answer["gone"].items():
        rules: dict[str, int] = {}
        for name in gone:
            if name in mine:
                rule = (mine[name] or "").partition(".")[0]
                rules[rule] = rules.get(rule, 0) + 1
        shown = ", ".join(
            f"{rule} {count:,}" for rule, count in sorted(rules.items(), key=lambda one: -one[1])[:4]
        )
        print(f"| {step} | {len(gone):,} | {sum(rules.values()):,} | {shown} |")


def _column(folder: Path, name: str) -> list[str]:
    return [
        value
        for file in sorted(folder.glob("*.parquet"))
        for value in pq.read_table(file, columns=[name]).column(name).to_pylist()
    ]


def alone(folder: Path, megabytes: float) -> None:
    """The default recipe by number of workers, and where its time goes."""
    source = folder / "alone"
    documents, size = write(source, megabytes, folder / "alone.parquet")
    recipe = {"tokenizer": {"vocab_size": 16_000}}
    print(
        f"\nThe default recipe, a tokenizer of 16,000 trained in it, on {documents:,} documents, {size:.0f} MB of text.\n"
    )
    print(
        "| run | CPU s | MB/s per core | s | memory of all processes, GB | in the profile |\n|---|---:|---:|---:|---:|---:|"
    )
    runs: dict[str, Ours] = {}
    for label, workers in (("1 worker", 1), ("2 workers", 2)):
        runs[label] = one = ours(folder, recipe, source, folder / label.replace(" ", "-"), workers)
        _row(label, one, size)
    less = {**recipe, "filter": {"score_removed": False}}
    _row("2 workers, `filter.score_removed: false`", ours(folder, less, source, folder / "less", 2), size)
    _row("2 workers, nothing to do", ours(folder, recipe, source, folder / "2-workers", 2), None)
    ten = folder / "ten"
    ten.mkdir()
    with (source / "00.jsonl").open(encoding="utf-8") as file:
        (ten / "ten.jsonl").write_text("".join(next(file) for _ in range(10)), encoding="utf-8")
    ours(folder, recipe, ten, folder / "of-ten-first", None)
    _row("ten documents", ours(folder, recipe, ten, folder / "of-ten", None), None)
    one, two = runs["1 worker"], runs["2 workers"]
    print(f"\nWith 2 workers {two.wall / one.wall:.2f} of the seconds of 1.")
    assert two.profile is not None
    _phases(two.profile)


def _row(label: str, one: Ours, size: float | None) -> None:
    memory = f"{one.memory / 1e9:.2f}" if size is not None else ""
    known = (
        f"{100 * one.profile.cpu_seconds / one.cpu:.1f} %" if one.profile and "nothing" not in label else ""
    )
    rate = f"{size / one.cpu:.2f}" if size is not None else ""
    print(f"| {label} | {one.cpu:.2f} | {rate} | {one.wall:.2f} | {memory} | {known} |", flush=True)


def _phases(profile: RunProfile) -> None:
    from corpusmill.pipeline.engine.planning.costs import of_profile, shortened

    print("\n| stage | phase | CPU s | % | waited s |\n|---|---|---:|---:|---:|")
    for one in shortened(of_profile(profile)):
        share = 100 * one.cpu / profile.cpu_seconds
        print(f"| {one.stage} | {one.phase} | {one.cpu:.2f} | {share:.1f} | {one.waited:.2f} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench whole_run")
    parser.add_argument("--mb", type=float, default=300.0, help="text of the default recipe")
    parser.add_argument(
        "--beside", type=float, default=10.0, help="text beside datatrove, which takes far longer"
    )
    options = parser.parse_args()
    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    with prepared() as folder:
        if options.beside:
            beside(folder, options.beside)
        if options.mb:
            alone(folder, options.mb)


if __name__ == "__main__":
    main()
