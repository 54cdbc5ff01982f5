"""What the `dedup` stage costs by step, the estimator's constants, and the plan for what no one machine runs.

The stage runs by its own interface, one thread, Parquet to Parquet, on three corpora of `corpus.py`, each in a
process of its own, which counts CPU seconds, bytes and requests of every step. The constants of the estimator
(`measured.json`) are fitted to all three. How good an estimate is shows on a corpus that had no part in the
fit: constants from the two others, corpus by the pilot. Also written: docs/scale.md, from the template of `_scale_page.py`.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import _scale_apart as apart
from bench import _scale_fit as fitted
from bench import _scale_page as page
from bench import corpus, natural
from bench.dedup_run import in_child
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.schemas.recipe import Recipe

ROOT = Path(__file__).resolve().parent.parent
# name: documents, bytes a document, partitions
SIZES = {"short": (120_000, 600, 10), "small": (12_000, 3000, 6), "large": (36_000, 3000, 18)}
HELD_OUT = "large"
# The same corpus with its files put together before they are read, as beyond `MOST_SLICES`, and several ranges.
SHUFFLED, SHUFFLED_PARAMS = "large, two levels", {"memory_mb": 16}
TURNS = 2  # of each, in processes of their own: a neighbour on the machine can only add to the seconds
LITTLE = (1_000, 600, 2)
KINDS = ("read", "written", "gets", "puts")
# Steps of the stage that the estimator counts as one.
NAMES = {
    "measured recall": "quality", "removed texts": "quality", "measured precision": "quality",
    "hot ranges": "candidates", "hot buckets": "candidates",
}  # fmt: skip


class Counted:
    """Bytes and requests of every `Folder`, by the step that is running; CPU seconds of the steps."""

    count = 1

    def __init__(self) -> None:
        self.step = "on the driver"
        self.steps: dict[str, dict[str, float]] = {}
        self.clock = time.process_time()
        read, read_range, write = Folder.read, Folder.read_range, Folder.write

        def counted_read(folder: Folder) -> bytes:
            self.add("gets", 1)
            data = read(folder)
            self.add("read", len(data))
            return data

        def counted_range(folder: Folder, offset: int, size: int) -> bytes:
            self.add("gets", 1)
            self.add("read", size)
            return read_range(folder, offset, size)

        def counted_write(folder: Folder, data: Any) -> None:
            self.add("puts", 1)
            self.add("written", len(data))
            write(folder, data)

        Folder.read, Folder.read_range, Folder.write = counted_read, counted_range, counted_write  # type: ignore[method-assign, assignment]

    def add(self, kind: str, amount: float) -> None:
        found = self.steps.setdefault(self.step, dict.fromkeys(("seconds", "tasks", *KINDS), 0.0))
        found[kind] += amount

    def enter(self, step: str) -> str:
        """Time so far goes to the step that was running; returns its name."""
        now = time.process_time()
        self.add("seconds", now - self.clock)
        self.clock = now
        before, self.step = self.step, step
        return before

    def map(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Any]:
        before = self.enter(label.removeprefix("dedup "))
        self.add("tasks", len(items))
        results = [function(item) for item in items]
        self.enter(before)
        return results

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        result = work()
        return lambda: result


def figures(recipe: Recipe, out: Folder, partitions: list[Partition], slim: bool) -> dict[str, Any]:
    """Run the stage into `out`, in two levels if `slim`: `steps` and `counters`."""
    from corpusmill.pipeline.dedup import deduplication as run_module
    from corpusmill.pipeline.dedup import job
    from corpusmill.pipeline.dedup.stage import Dedup
    from corpusmill.pipeline.engine.publish import publish_bytes, publish_table
    from corpusmill.pipeline.engine.stage import Context

    dedup = Dedup(recipe)
    run_module.MOST_SLICES = 0 if slim else job.MOST_SLICES
    before = Folder.read, Folder.read_range, Folder.write
    counted = Counted()
    _, counters = dedup.prepare(Context(recipe, out.parent, out, partitions, {}, counted))
    counted.enter("on the driver")
    counted.add("written", (out / "clusters.parquet").entry().size)  # streamed, not by `write`
    counted.enter("transform")
    counted.add("tasks", len(partitions))
    for part in partitions:  # as `corpusmill.pipeline.engine.tasks` does it
        with contextlib.suppress(FileNotFoundError):
            (out / f"parts/{part.name}.json").read()
        outcome = dedup.transform(out, part.name)(part.read())
        publish_table(out, f"documents/{part.name}.parquet", outcome.kept)
        publish_table(out, f"decisions/{part.name}.parquet", outcome.decisions)
        publish_bytes(out, f"parts/{part.name}.json", b"{}")
    counted.enter("")
    Folder.read, Folder.read_range, Folder.write = before  # type: ignore[method-assign]
    steps: dict[str, dict[str, float]] = {}
    for label, amounts in counted.steps.items():
        name = "files together" if label.endswith(" together") else NAMES.get(label, label)
        total = steps.setdefault(name, dict.fromkeys(amounts, 0.0))
        for kind, amount in amounts.items():
            total[kind] += amount
    return {"steps": steps, "counters": counters}


def run(
    documents: int, mean_bytes: int, partitions: int, params: dict[str, Any], slim: bool = False
) -> dict[str, Any]:
    """The stage on a corpus of `corpus.py`, in two levels if `slim`: `steps`, `counters`, memory, and what the pilot saw before."""
    from corpusmill.pipeline.dedup.estimate.pilot import pilot
    from corpusmill.schemas.dedup import DedupParams

    with tempfile.TemporaryDirectory() as name:
        root = Folder(name)
        little, made = write(root / "little", *LITTLE), write(root / "in", documents, mean_bytes, partitions)
        checked = DedupParams.model_validate(params)
        seen = pilot(made, checked)
        start = time.process_time()
        seen = pilot(made, checked)
        pilot_seconds = time.process_time() - start
        found: dict[str, Any] = {}
        for _ in range(TURNS):
            for out in ("warm", "out"):
                (root / out).delete()
            turn = in_child("bench.scale", root, list(natural.sources()), params, little, made, slim=slim)
            for step, amounts in found.get("steps", {}).items():
                turn["steps"][step]["seconds"] = min(turn["steps"][step]["seconds"], amounts["seconds"])
            found = turn
    return {**found, "corpus": seen, "params": checked, "pilot_seconds": pilot_seconds}


def write(folder: Folder, documents: int, mean_bytes: int, partitions: int) -> list[Partition]:
    """A corpus of `corpus.py` in so many partitions."""
    rows = corpus.plan(documents, mean_bytes)
    names = corpus.real_text().sources
    found = []
    for index, numbers in enumerate(np.array_split(np.arange(documents), partitions)):
        some = rows[numbers]
        sources = [names[number] for number in some["source"].tolist()]
        locators = [str(number) for number in numbers.tolist()]
        found.append(corpus.publish(folder, f"{index:05d}", sources, locators, corpus.texts(some)))
    return found


def measure() -> dict[str, Any]:
    """`runs` by name, the constants `held_out` of one and of `all`, and what was estimated for each run."""
    from bench.__main__ import machine
    from corpusmill.pipeline.dedup.banding import banding
    from corpusmill.pipeline.dedup.estimate import quantities
    from corpusmill.pipeline.dedup.estimate.corpus import Measured
    from corpusmill.pipeline.dedup.estimate.model import estimate
    from corpusmill.pipeline.engine.planning.constants import LOCAL

    runs = {name: run(*size, {}) for name, size in SIZES.items()}
    two_levels = run(*SIZES[HELD_OUT], SHUFFLED_PARAMS, slim=True)
    driver: dict[str, Any] = {**apart.driver_constants(), **fitted.alike()}
    known = apart.prices()
    idle = max(item["memory_before"] for item in runs.values()) * 2**20

    def constants(some: Sequence[dict[str, Any]]) -> Measured:
        seconds = fitted.fit(some, known)
        return Measured(machine=machine(), seconds=seconds, worker_bytes=idle, **driver)

    whole = constants(list(runs.values()))
    held_out = constants([item for name, item in runs.items() if name != HELD_OUT])
    for name, item in (*runs.items(), (SHUFFLED, two_levels)):
        prices = held_out if name in (HELD_OUT, SHUFFLED) else whole
        limit = quantities.MOST_SLICES
        try:
            if name == SHUFFLED:
                quantities.MOST_SLICES = 0
            item["estimate"] = estimate(
                item["corpus"], item["params"], banding(item["params"]), 1, LOCAL, prices
            )
        finally:
            quantities.MOST_SLICES = limit
    runs[SHUFFLED] = two_levels
    return {"runs": runs, "constants": whole}


def main() -> None:
    """Print the tables; write the constants and docs/scale.md."""
    from corpusmill.pipeline.dedup.estimate.corpus import measured, path

    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    found = measure()
    path().write_text(found["constants"].model_dump_json(indent=1) + "\n", encoding="utf-8")
    measured.cache_clear()
    text = page.page(found["runs"], HELD_OUT, SHUFFLED)
    (ROOT / "docs" / "scale.md").write_text(text, encoding="utf-8")
    print(page.tables(found["runs"], HELD_OUT, SHUFFLED))
    print("\nThe plan for 10 billion documents: docs/scale.md.")


if __name__ == "__main__":
    main()
