"""The `dedup` stage by its own interface in a process of its own, one thread, from Parquet to Parquet.

The process runs the stage on a little corpus first (Numba compiles, imports end), then on the one to measure;
`scale.py` looks at other things meanwhile, in the same way.
Seconds are CPU seconds of that process; its memory is its peak resident set, Arrow's and Numba's included.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import corpus, natural
from bench.peers import ONE_THREAD
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.recipe import Recipe

ROOT = Path(__file__).resolve().parent.parent
LITTLE = 400  # documents of the run before the clock starts


class Serial:
    """Tasks in this process; CPU seconds by step, and the most bytes that `scratch` held after one."""

    count = 1

    def __init__(self, scratch: Folder) -> None:
        self.scratch, self.bytes, self.weighing = scratch, 0, 0.0
        self.seconds: dict[str, float] = {}

    def map(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Any]:
        start = time.process_time()
        results = [function(item) for item in items]
        label = label.removeprefix("dedup ")
        self.seconds[label] = self.seconds.get(label, 0) + time.process_time() - start
        self.weigh()
        return results

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        result = work()
        return lambda: result

    def weigh(self) -> None:
        """Looks at `scratch`; `weighing` are the CPU seconds that this took, no part of the stage's."""
        start = time.process_time()
        self.bytes = max(self.bytes, sum(entry.size for entry in self.scratch.list()))
        self.weighing += time.process_time() - start


def run(
    root: Folder,
    partitions: Sequence[Partition],
    sources: Sequence[str],
    params: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Deduplicate `partitions`, of documents of `sources`, into `root/out` in a child process.

    `params` are the stage's, over its defaults. Returns `seconds` by step, `wall`, `counters`, `memory_before`
    and `memory_peak` (MiB), `scratch_bytes` and `quality` (what the stage measured of itself).
    """
    little = corpus.write(root / "little", LITTLE, 600).partitions
    names = sorted({*sources, *natural.sources()})
    return in_child("bench.dedup_run", root, names, params or {}, little, partitions)


def in_child(
    module: str, root: Folder, sources: Sequence[str], params: dict[str, Any],
    little: Sequence[Partition], partitions: Sequence[Partition], **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """What `figures(recipe, folder, partitions, **options)` of `module` returns of the second corpus, with the
    memory of the process before and at its peak (MiB). Its folders are `root/warm` and `root/out`."""
    spec = {
        "module": module, "params": params, "sources": list(sources), "options": options,
        "little": [_plain(part) for part in little], "in": [_plain(part) for part in partitions],
    }  # fmt: skip
    (root / "spec.json").write(json.dumps(spec).encode())
    command = [sys.executable, "-c", "import sys; from bench.dedup_run import child; child(sys.argv[1])"]
    done = subprocess.run(
        [*command, root.url], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True,
        env={**os.environ, **ONE_THREAD},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def child(url: str) -> None:
    """What the process does: reads `spec.json`, runs, prints the figures as JSON."""
    root = Folder(url)
    spec = json.loads((root / "spec.json").read())
    sources = {name: {"paths": ["-"]} for name in spec["sources"]}
    recipe = Recipe.model_validate({"name": "bench", "sources": sources, "dedup": spec["params"]})
    stage = import_module(spec["module"]).figures

    def turn(out: str, some: str) -> dict[str, Any]:
        parts = [Partition(**{**part, "folder": Folder(part["folder"])}) for part in spec[some]]
        return dict(stage(recipe, root / out, parts, **spec["options"]))

    turn("warm", "little")
    before = _memory()
    print(json.dumps({**turn("out", "in"), "memory_before": before, "memory_peak": _memory()}))


def figures(recipe: Recipe, out: Folder, partitions: list[Partition]) -> dict[str, Any]:
    """Run the stage into `out`: what `run` returns, without the memory."""
    from corpusmill.pipeline.dedup.stage import Dedup
    from corpusmill.pipeline.engine.publish import publish_table
    from corpusmill.pipeline.engine.stage import Context

    dedup, serial = Dedup(recipe), Serial(out / "scratch")
    wall, start = time.perf_counter(), time.process_time()
    _, counters = dedup.prepare(Context(recipe, out.parent, out, partitions, {}, serial))
    preparing = time.process_time() - start - serial.weighing
    serial.weigh()
    begun = time.process_time()
    for part in partitions:
        outcome = dedup.transform(out, part.name)(part.read())
        publish_table(out, f"documents/{part.name}.parquet", outcome.kept)
        publish_table(out, f"decisions/{part.name}.parquet", outcome.decisions)
    removal = time.process_time() - begun
    seconds = {
        **serial.seconds, "on the driver": preparing - sum(serial.seconds.values()),
        "removal, Parquet to Parquet": removal, "whole stage": preparing + removal,
    }  # fmt: skip
    return {
        "seconds": seconds, "wall": time.perf_counter() - wall, "counters": counters,
        "scratch_bytes": serial.bytes, "quality": json.loads((out / "quality.json").read()),
    }  # fmt: skip


def measured(quality: dict[str, Any]) -> str:
    """The shares that the stage measured of itself, with their 95 % intervals."""
    return "; ".join(_shares(quality["measured"], "")) or "nothing to measure"


def _shares(node: dict[str, Any], path: str) -> Iterator[str]:
    for name, item in node.items():
        where = f"{path}{name.replace('_', ' ')}"
        if isinstance(item, dict) and item.get("value") is not None and "low" in item:
            interval = f"{item['low']:.4f} to {item['high']:.4f}"
            yield f"{where} {item['value']:.4f} ({interval}, of {item['of']:,})"
        elif isinstance(item, dict):
            yield from _shares(item, f"{where} ")


def _plain(part: Partition) -> dict[str, Any]:
    return {
        "name": part.name, "folder": part.folder.url, "rows": part.rows, "text_bytes": part.text_bytes,
        "xxh3": part.xxh3,
    }  # fmt: skip


def _memory() -> float:
    """Peak memory of this process, MiB. Its `ru_maxrss` would count what the parent had when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
