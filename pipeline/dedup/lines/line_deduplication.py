"""Line deduplication of a corpus on the scheduler: the driver's side.

units (per partition) -> compare (per range of keys) -> mark (per partition) -> publish (per partition). Texts are
read twice, and only counts and the places of records come to the driver.

A line or a paragraph is cut whole and its neighbours stay as they are, so one round is enough. Sentence windows overlap, and
where one is cut its neighbours make new windows: rounds are repeated on the texts that the last one left, until nothing is
found. Partitions in which the last round changed nothing are not read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Kept
from corpusmill.pipeline.dedup.lines import line_steps
from corpusmill.pipeline.dedup.lines.line_steps import Job, Mark, Range, Scan
from corpusmill.pipeline.engine.shuffle import Done, by_part
from corpusmill.pipeline.engine.stage import Scheduler
from corpusmill.pipeline.text import word_rule
from corpusmill.schemas.dedup import LineParams
from corpusmill.schemas.manifest import PublishedFile, hash_json

VERSION = "1"
TEXT_PER_UNIT = 32  # bytes: fewer than units of prose have. What has more units is compared in more shares.


def find(
    folder: Folder, kept: Sequence[Kept], params: LineParams, priorities: Mapping[str, int],
    remove_only_from: Sequence[str] | None, scheduler: Scheduler, memory_mb: int, key: str,
) -> tuple[list[PublishedFile], dict[str, int]]:  # fmt: skip
    """Publish `spans/lines/<partition>.parquet` (`corpusmill.pipeline.dedup.stage.SPANS`) for every partition: what to cut
    so that of each unit of `params` one occurrence stays. (files, counters).

    Units are those of `line_kernels.py`. The occurrence that stays lies in a document of a source not in
    `remove_only_from` (those lose nothing), else in the source of the highest of `priorities` (0 if not named),
    else in the document with the least id, there at the least offset. `memory_mb` bounds what a range task holds
    and so sets the number of ranges; `key` is of all else that the files depend on. Resumable; intermediate files
    lie in `scratch/lines/`.

    Counters: `lines_cut` (units), `line_bytes_cut`, `documents_with_cut_lines`, `source/<name>/line_bytes_cut`,
    `distinct_repeated_lines`, and `most_repeated_line`: occurrences of the most frequent unit, 0 if none repeats.
    """
    text_bytes = sum(item.partition.text_bytes for item in kept)
    budget = memory_mb << 20
    ranges = max(1, -(-text_bytes // TEXT_PER_UNIT * line_steps.RECORD_BYTES // budget))
    ranked = sorted({0, *priorities.values()}, reverse=True)
    orders = {"": ranked.index(0)}
    orders.update({name: ranked.index(value) for name, value in sorted(priorities.items())})
    removable = None if remove_only_from is None else tuple(sorted(set(remove_only_from)))
    version = [VERSION, word_rule.RULE]
    own_key = hash_json(
        [version, key, params.model_dump(mode="json"), ranges, sorted(orders.items()), removable]
    )
    job = Job(folder, params, ranges, tuple(orders.items()), removable, own_key)
    return _Run(job, kept, scheduler, budget).run()


class _Run:
    def __init__(self, job: Job, kept: Sequence[Kept], scheduler: Scheduler, budget: int) -> None:
        self.job, self.kept, self.scheduler, self.budget = job, kept, scheduler, budget
        self.before: list[PublishedFile | None] = [None] * len(kept)
        self.scans: list[Done | None] = [None] * len(kept)
        self.marks: list[Done | None] = [None] * len(kept)

    def map(
        self, step: Any, items: Sequence[Any], label: str, kept: Sequence[Kept] | None = None
    ) -> list[Done]:
        sizes = [item.partition.text_bytes for item in kept] if kept is not None else None
        return self.scheduler.map(partial(step, self.job), items, f"dedup lines: {label}", sizes)

    def run(self) -> tuple[list[PublishedFile], dict[str, int]]:
        total: Counter[str] = Counter()
        round_number = 0
        while True:
            ranges = self.compare(round_number)
            if round_number == 0:
                total["distinct_repeated_lines"] = sum(done.counters["repeated"] for done in ranges)
                most = max((done.counters["most"] for done in ranges), default=0)
                total["most_repeated_line"] = most if most > 1 else 0
            cut, changed = self.mark(round_number, by_part(ranges, "lost"))
            total["lines_cut"] += cut
            if not changed or self.job.params.unit != "sentences":
                break
            round_number += 1
        scans = [Scan(item, 0, before) for item, before in zip(self.kept, self.before, strict=True)]
        published = self.map(line_steps.publish, scans, "spans", self.kept)
        files = [done.files["spans"].file for done in published]
        return files, self.count(total)

    def compare(self, round_number: int) -> list[Done]:
        """Scan the partitions whose texts are not those of the last scan, and compare all keys."""
        new = [place for place, done in enumerate(self.scans) if done is None]
        items = [Scan(self.kept[place], round_number, self.before[place]) for place in new]
        scans = self.map(line_steps.units, items, "units", [item.kept for item in items])
        for place, done in zip(new, scans, strict=True):
            self.scans[place] = done
        ranges = []
        for number, slices in by_part([done for done in self.scans if done], "units").items():
            records = sum(part.size for part in slices)
            shares = max(1, -(-records * line_steps.RECORD_BYTES // self.budget))
            ranges += [Range(number, share, shares, round_number, slices) for share in range(shares)]
        return self.map(line_steps.compare, ranges, "repeats")

    def mark(self, round_number: int, lost: Mapping[int, Any]) -> tuple[int, bool]:
        """(units cut in this round, whether any text is now another)."""
        items, places = [], []
        for place, (item, scan) in enumerate(zip(self.kept, self.scans, strict=True)):
            if item.index in lost or (scan and scan.counters["repeats"]):
                places.append(place)
                items.append(Mark(Scan(item, round_number, self.before[place]), lost.get(item.index, ())))
        cut, changed = 0, False
        kept = [item.scan.kept for item in items]
        for place, done in zip(places, self.map(line_steps.mark, items, "spans to cut", kept), strict=True):
            file, before = done.files["spans"].file, self.before[place]
            cut += done.counters["lines"]
            if file.xxh3 != before.xxh3 if before else file.rows:
                self.before[place], self.scans[place], self.marks[place] = file, None, done
                changed = True
        return cut, changed

    def count(self, total: Counter[str]) -> dict[str, int]:
        """The counters of `find`."""
        total["line_bytes_cut"] = total["documents_with_cut_lines"] = 0
        for done in filter(None, self.marks):
            total["line_bytes_cut"] += done.counters["bytes"]
            total["documents_with_cut_lines"] += done.counters["documents"]
            for name, value in done.counters.items():
                if name.startswith("source/"):
                    total[f"{name.removesuffix('bytes')}line_bytes_cut"] += value
        return dict(sorted(total.items()))
