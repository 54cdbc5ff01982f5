"""The recipe runner: what must run and why, in which order, what was published, and how a killed run resumes.

Stage keys chain (stage, version, parameters, keys of its inputs): a stage whose manifest holds the wanted
key and whose files are there is finished; a changed parameter changes the keys of that stage and of
everything that reads it, and of nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from pydantic import ValidationError

from corpusmill.common.checkpoints import parse
from corpusmill.common.costs import METER
from corpusmill.common.errors import WorkError
from corpusmill.common.ids import sha256
from corpusmill.common.signing import signer
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.done import manifest_of, publish_manifest, speed
from corpusmill.pipeline.engine.expire import expire, intermediate, restore
from corpusmill.pipeline.engine.layout import INPUTS, RUN, made_in, read_inputs
from corpusmill.pipeline.engine.losses import LostSources, lost_sources
from corpusmill.pipeline.engine.output import check_recipe
from corpusmill.pipeline.engine.owner import Claim
from corpusmill.pipeline.engine.planned import (
    Planned,
    groups,
    partitions_of,
    reads_of,
    stages_of,
    status,
)
from corpusmill.pipeline.engine.planning import page
from corpusmill.pipeline.engine.planning.meter import MeteredScheduler
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.pipeline.engine.publish import publish_bytes
from corpusmill.pipeline.engine.record import made_record, publish_record, recorded_manifests
from corpusmill.pipeline.engine.stage import (
    MANY_BYTES,
    Context,
    GlobalStage,
    LocalStage,
    Partition,
    Scheduler,
    SourceStage,
)
from corpusmill.pipeline.engine.tasks import (
    PartitionTask,
    UnitTask,
    run_partition,
    run_unit,
    unit_manifest,
    unit_marker,
)
from corpusmill.schemas import profile
from corpusmill.schemas.manifest import (
    EXPIRED,
    MANIFEST,
    PartitionManifest,
    PublishedFile,
    RunInputs,
    SourceLost,
    StageManifest,
    StageResources,
    Strict,
    UnitManifest,
    manifest_name,
    stage_key,
    without_empty,
)
from corpusmill.schemas.planning import RunPlan
from corpusmill.schemas.profile import RunProfile
from corpusmill.schemas.recipe import FOLDERS, LEDGER, REPORT, Recipe, is_local

Check = Callable[[list[Planned]], object]


class Run:
    """A recipe bound to a folder. `plan` decides, `execute` works, both may be called again.

    `folders` overrides the place of single stages (a stage command publishes straight into OUT). With `replace` the finished
    run of another recipe may be made again. `owned` must be held around `plan` and the `execute` that follows. `from_start`: the
    profile counts the whole process, not only the time since this object was made.
    """

    def __init__(
        self, recipe: Recipe, folder: Folder, scheduler: Scheduler, progress: Progress | None = None,
        folders: dict[str, Folder] | None = None, replace: bool = False, from_start: bool = False,
    ) -> None:  # fmt: skip
        if not from_start:
            METER.restart()
        METER.wait("other")
        self.replace = replace
        self._claim: Claim | None = None
        self.recipe, self.folder, self.scheduler = recipe, folder, MeteredScheduler(scheduler)
        self.progress = progress or Progress(quiet=True)
        self.folders = folders or {}
        self.recipe_json = recipe.model_dump_json()
        self._inputs_to_save: RunInputs | None = None
        self.signer = signer()  # now, so that a wrong key is known before anything is done
        self.forecast: RunPlan | None = None  # what its stages will cost, to be shown beside what they did

    @contextmanager
    def owned(self) -> Iterator[None]:
        """The output claimed for the block. Raises `UserError` if another run owns it, or it is another recipe's."""
        source = load_stage(self.recipe.stage_names[0], self.recipe)
        if isinstance(source, SourceStage):
            source.check_apart(self.folder)  # before anything is written there
        with Claim(self.folder, self.progress.log) as self._claim:
            self.check_recipe()
            yield

    def check_recipe(self) -> None:
        """Raise `UserError` if the output is the finished run of another recipe, and may not be replaced."""
        if not self.replace:
            check_recipe(self.recipe, self.folder, alone=bool(self.folders))

    def _check_claim(self) -> None:
        if self._claim is not None:
            self._claim.check()

    def folder_of(self, name: str) -> Folder:
        return self.folders.get(name, self.folder / FOLDERS.get(name, name))

    def _names(self) -> tuple[list[str], list[str]]:
        """All stages in order, the ledger among them; the local ones."""
        return stages_of(self.recipe), self.recipe.local

    def report(self) -> list[StageManifest]:
        """Write the report of a finished run again. Only what was published is read: the raw input may be gone."""
        with Claim(self.folder, self.progress.log) as self._claim:
            self._check_claim()
            return self._report_again()

    def _report_again(self) -> list[StageManifest]:
        names, local = self._names()
        planned: list[Planned] = []
        ended_early, recorded = False, recorded_manifests(self.folder)
        for name in names[:-1]:
            if name not in local and planned[-1].name == LEDGER and self._losses(planned):
                ended_early = True
                break
            folder = self.folder_of(name)
            try:
                data = (folder / manifest_name(name)).read()
                manifest = StageManifest.model_validate_json(data)
            except (FileNotFoundError, ValidationError):
                raise WorkError(f"{folder}: {name} is not finished there; run the recipe first") from None
            if recorded.get((name, manifest.key)) not in (None, "", sha256(data)):
                raise WorkError(
                    f"{folder / manifest_name(name)}: its bytes changed since they were published; run the recipe again"
                )
            planned.append(
                Planned(load_stage(name, self.recipe), folder, manifest.key, manifest.inputs, done=manifest)
            )
        entry = self._report_on(planned)
        self._run_global(entry, self._partitions(planned[len(local) - 1]), [*planned, entry])
        manifests = [p.done for p in (*planned, entry) if p.done is not None]
        self._publish_run(manifests, ended_early)
        return manifests

    def plan(self, check: Check | None = None) -> list[Planned]:
        """Every stage in order, with its key and why it would run (empty: finished and valid).

        `check` is called before much input is read to find the keys, with all stages as if none was finished.
        """
        with self.progress.work("plan"), METER.phase("plan"):
            return self._plan(check)

    def _plan(self, check: Check | None) -> list[Planned]:
        names, local = self._names()
        planned: list[Planned] = []
        keys: dict[str, str] = {}
        recorded = recorded_manifests(self.folder)
        for name in names:
            stage = load_stage(name, self.recipe)
            reads = reads_of(name, names, local)
            if isinstance(stage, SourceStage):
                inputs = self._raw_inputs(stage, check, names[1:])
            else:
                inputs = {n: keys[n] for n in reads}
            params = stage.key_params()
            key = keys[name] = stage_key(name, stage.version, params, inputs)
            entry = Planned(stage, self.folder_of(name), key, inputs, reads=reads)
            entry.done, entry.why = status(entry, params, recorded.get((name, key), ""))
            planned.append(entry)
        restore(planned)
        return planned

    def _raw_inputs(self, stage: Any, check: Check | None, later: Sequence[str]) -> dict[str, str]:
        """Content hashes of the raw files; files whose size and change tag are known are not read again."""
        stage.check_apart(self.folder)
        before = read_inputs(self.folder)
        stage.known_inputs = dict(before.files)
        stage.known_parts = dict(before.parts) if before.part_bytes == stage.part_bytes else {}
        unread = stage.unread_bytes()
        much = unread >= MANY_BYTES
        if much and check is not None:
            stages = [stage, *(load_stage(name, self.recipe) for name in later)]
            check([Planned(one, self.folder_of(one.name), "", {}) for one in stages])
        shown = nullcontext() if much else self.progress.work("read of the input", unread)
        with shown, self.scheduler.ahead(stage.name):
            inputs: dict[str, str] = stage.inputs(self.scheduler)
        paths = [path for source in self.recipe.sources.values() for path in source.places]
        now = RunInputs(
            files=dict(stage.known_inputs), made_in=made_in(self.folder, paths), revisions=stage.revisions, lists=stage.lists,
            parts=dict(stage.known_parts), part_bytes=stage.part_bytes if stage.known_parts else 0,
        )  # fmt: skip
        self._inputs_to_save = now if now != before else None
        return inputs

    def execute(self, planned: list[Planned] | None = None) -> list[StageManifest]:
        """Run what `plan` says must run; the manifests of all stages.

        Raises `LostSources` when a local stage kept less of a source than its `min_kept`: the stages up to the ledger, and
        the report, are published by then, and what trains on the documents is not begun.
        """
        if planned is None:
            with self.owned():
                return self.execute(self.plan())
        with self.progress.work("run"):
            return self._execute(planned)

    def _execute(self, planned: list[Planned]) -> list[StageManifest]:
        if any(entry.done is None for entry in planned):
            self._check_claim()
        if self._inputs_to_save is not None:
            content = without_empty(
                self._inputs_to_save.model_dump(), "revisions", "lists", "parts", "part_bytes"
            )
            data = json.dumps(content, indent=0).encode()
            publish_bytes(self.folder, INPUTS, data)
        for entry in planned:
            if entry.done is None:  # no reader may take the old result for the new one
                entry.folder.delete(
                    [name for name in (entry.manifest, EXPIRED) if (entry.folder / name).exists()]
                )
        if any(entry.done is None for entry in planned):
            for entry in planned:
                if entry.done is not None:
                    self.progress.log(f"  {entry.name:<20} finished before: {self._found(entry)}")
        local = [entry for entry in planned if isinstance(entry.stage, SourceStage | LocalStage)]
        partitions: list[Partition] = []
        for group in groups(local):
            partitions = self._run_group(group, partitions, planned)
        for entry in planned:
            if isinstance(entry.stage, GlobalStage) and entry.done is None:
                self._run_global(entry, partitions, planned)
            if entry.name == LEDGER and (losses := self._losses(planned)):
                manifests = self._close_accounts(planned, partitions)
                raise LostSources(losses, manifests)
        manifests = [entry.done for entry in planned if entry.done is not None]
        self._publish_profile()
        self._publish_run(manifests)
        expire(intermediate(self.recipe, self.folder_of), self.recipe.retain, self.progress.log)
        return manifests

    def _losses(self, planned: list[Planned]) -> list[SourceLost]:
        local = {
            entry.name: entry.done for entry in planned if is_local(entry.name) and entry.done is not None
        }
        return lost_sources(self.recipe, local, self.folder_of(LEDGER), command=bool(self.folders))

    def _close_accounts(self, planned: list[Planned], partitions: list[Partition]) -> list[StageManifest]:
        """The report and the record of a run that ends after the ledger; the manifests of what is finished."""
        finished = planned[: next(i for i, entry in enumerate(planned) if entry.name == LEDGER) + 1]
        later = planned[len(finished) :]
        for entry in later:  # of an earlier run: they were made from what this one no longer holds
            entry.folder.delete([entry.manifest] if (entry.folder / entry.manifest).exists() else [])
        if any(entry.name == REPORT for entry in later):
            entry = self._report_on(finished)
            self._run_global(entry, partitions, [*finished, entry])
            finished.append(entry)
        manifests = [entry.done for entry in finished if entry.done is not None]
        self._publish_profile()
        self._publish_run(manifests, ended_early=True)
        return manifests

    def _report_on(self, finished: list[Planned]) -> Planned:
        """The report on these stages."""
        stage = load_stage(REPORT, self.recipe)
        inputs = {entry.name: entry.key for entry in finished}
        key = stage_key(REPORT, stage.version, stage.key_params(), inputs)
        return Planned(stage, self.folder_of(REPORT), key, inputs, reads=[entry.name for entry in finished])

    def _run_group(
        self, group: list[Planned], partitions: list[Partition], planned: list[Planned]
    ) -> list[Partition]:
        """Run fused stages over all partitions; the partitions that come out."""
        if any(entry.done is None for entry in group):
            label = "+".join(entry.name for entry in group)
            prepared: tuple[list[PublishedFile], dict[str, int]] = ([], {})
            markers: dict[str, UnitManifest] = {}
            first = group[0].stage
            steps = tuple(entry.step for entry in group)
            columns: Sequence[Sequence[PartitionManifest]]
            with self.scheduler.at_work(*(entry.name for entry in group)):
                if isinstance(first, LocalStage) and first.looks_across and group[0].done is None:
                    with self.progress.work(group[0].name):
                        prepared = first.prepare(self._context(group[0], partitions, planned))
                if isinstance(first, SourceStage):
                    tasks = [UnitTask(self.recipe_json, steps, unit) for unit in first.units()]
                    chains = self.scheduler.map(run_unit, tasks, label, [task.unit.size for task in tasks])
                    markers = {
                        unit_marker(task.unit): unit_manifest(
                            steps[0], task.unit, [m.partition for m in chain[0]]
                        )
                        for task, chain in zip(tasks, chains, strict=True)
                    }
                    columns = [[m for chain in chains for m in chain[i]] for i in range(len(group))]
                else:
                    jobs = [PartitionTask(self.recipe_json, steps, partition) for partition in partitions]
                    rows = self.scheduler.map(run_partition, jobs, label, [p.text_bytes for p in partitions])
                    columns = [[row[i] for row in rows] for i in range(len(group))]
            for entry, manifests in zip(group, columns, strict=True):
                if entry.done is None:
                    extra = prepared if entry is group[0] else ([], {})
                    mine = markers if entry is group[0] else {}
                    entry.done = self._publish_stage(entry, manifests, *extra, markers=mine)
                    self.progress.log(f"  {entry.name:<20} {speed(entry)}{self._found(entry)}")
        return self._partitions(group[-1])

    @staticmethod
    def _partitions(entry: Planned) -> list[Partition]:
        assert entry.done is not None
        return partitions_of(entry.folder, entry.done)

    def _run_global(self, entry: Planned, partitions: list[Partition], planned: list[Planned]) -> None:
        assert isinstance(entry.stage, GlobalStage)
        clock = time.process_time()
        start = time.monotonic()
        with self.progress.work(entry.name), self.scheduler.at_work(entry.name):
            files, counters = entry.stage.run(self._context(entry, partitions, planned))
        entry.done = self._publish_stage(entry, [], files, counters, time.process_time() - clock)
        found = self._found(entry)
        self.progress.log(
            f"{entry.name:<25} {'done':>11}  {time.monotonic() - start:7.1f} s  {found}".rstrip()
        )

    def _context(self, entry: Planned, partitions: list[Partition], planned: list[Planned]) -> Context:
        previous = {p.name: p.folder for p in planned if p.name in entry.reads}
        return Context(
            self.recipe, self.folder, entry.folder, partitions, previous, self.scheduler, self.progress.log,
            self.progress.work,
        )  # fmt: skip

    @staticmethod
    def _found(entry: Planned) -> str:
        """What a finished stage found, in words."""
        assert entry.done is not None
        return entry.stage.found(entry.done, entry.folder)

    def _publish_stage(
        self, entry: Planned, parts: Sequence[PartitionManifest], files: list[PublishedFile],
        counters: dict[str, int], seconds: float = 0.0, markers: Mapping[str, UnitManifest] | None = None,
    ) -> StageManifest:  # fmt: skip
        """The stage's manifest, before which whatever it does not name is deleted. `markers`: of units of input, by their path."""
        self._check_claim()
        with METER.phase("manifest", entry.name):
            manifests: dict[str, Strict] = {f"parts/{part.partition}.json": part for part in parts}
            manifests.update(markers or {})
            resources = self._resources(entry.name)
            manifest = manifest_of(entry, parts, manifests, files, counters, seconds, resources)
            publish_manifest(entry, manifest, parts, manifests, entry.name in self.folders)
        return manifest

    def _resources(self, stage: str) -> StageResources:
        plan = self.forecast.stage(stage) if self.forecast else None
        return StageResources(planned=plan.figures() if plan else None, actual=self.scheduler.used(stage))

    def _publish_profile(self) -> None:
        """Where the time went, if there was something to do; the workers end before it is written."""
        if self.scheduler.booked and not self.folders:
            self.scheduler.end()
            publish_bytes(self.folder, profile.FILE, self.scheduler.profile().to_json())

    def read_profile(self) -> RunProfile | None:
        """Of the last run that had something to do; None if there was none, or its file is damaged."""
        return parse(RunProfile, self.folder / profile.FILE)

    def _publish_run(self, manifests: list[StageManifest], ended_early: bool = False) -> None:
        places = {m.stage: self.folder_of(m.stage) for m in manifests}
        used = {m.stage: m.resources for m in manifests if m.resources is not None}
        if used and not self.folders:
            publish_bytes(self.folder, page.FILE, page.render(self.recipe.name, used, self.read_profile()))
        record = made_record(self.folder, self.recipe, manifests, places, ended_early)
        name = RUN if self.folders else MANIFEST
        publish_record(self.folder / name, record, self.signer, self.progress.log)
