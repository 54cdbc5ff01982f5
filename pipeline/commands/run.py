"""`corpusmill run`: a recipe; and a stage by itself, which is a recipe of that stage and of what it reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corpusmill.pipeline.commands.options import Address, Json, Quiet, Replace, RunWorkers, Set, print_json

if TYPE_CHECKING:
    from corpusmill.schemas.planning import RunPlan

RUN_EXAMPLE = "corpusmill run recipe.yaml --set dedup.ngram=4"


def run(
    recipe: Annotated[str, typer.Argument(help="A recipe (YAML).")],
    set_: Set = None,
    scheduler: Address = None,
    workers: RunWorkers = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run and why; write nothing.")
    ] = False,
    json: Json = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show where the time went, by stage and phase.")
    ] = False,
    quiet: Quiet = False,
    replace: Replace = False,
) -> None:
    """The whole pipeline: whatever is finished and valid is skipped."""
    from corpusmill.common.config import load
    from corpusmill.schemas.recipe import Recipe

    settings = list(set_ or []) + ([f"cluster.workers={workers}"] if workers is not None else [])
    loaded = load(Recipe, recipe, settings)
    loaded = loaded.importing_from(str(Path(recipe).resolve().parent), str(Path.cwd()))
    _execute(loaded, loaded.output_url, scheduler, dry_run, json, quiet, replace, profile=profile)


def _execute(
    recipe: Any, output: str, address: str | None, dry_run: bool, json: bool, quiet: bool, replace: bool,
    folders: dict[str, str] | None = None, profile: bool = False,
) -> None:  # fmt: skip
    # NumPy's library looks at this when it is loaded. Its threads wait in a loop, each on a core, for products of a millisecond.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from corpusmill.common.costs import METER
    from corpusmill.common.errors import UserError
    from corpusmill.common.kernel_keys import is_first_use
    from corpusmill.common.lazy_pandas import put_off_pandas
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.commands.kernels import compile_ahead
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.local_workers import collecting_rarely
    from corpusmill.pipeline.engine.losses import LostSources
    from corpusmill.pipeline.engine.owner import in_use, owner_of
    from corpusmill.pipeline.engine.planning.costs import lines
    from corpusmill.pipeline.engine.planning.estimate import of_run
    from corpusmill.pipeline.engine.planning.text import beside, brief
    from corpusmill.pipeline.engine.preflight import preflight
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.engine.runner import Run

    put_off_pandas()
    progress = Progress(quiet=quiet)
    folder = Folder(output)
    with collecting_rarely(), Workers(recipe.cluster, address, progress) as scheduler:
        overrides = {name: Folder(url) for name, url in (folders or {}).items()}
        job = Run(recipe, folder, scheduler, progress, overrides, replace, from_start=True)
        warned: set[str] = set()

        first_use = is_first_use()

        def check(planned: list[Any]) -> RunPlan:
            first = "the first run on this machine compiles its kernels: some minutes, once"
            if first_use and first not in warned:
                progress.log(first)
                warned.add(first)
            with progress.work("checks"), METER.phase("checks"):
                plan = of_run(planned, len(recipe.sources), scheduler.adapt, not folder.local)
                warnings = preflight(recipe, folder, scheduler, planned, plan, claimed=not dry_run)
            for warning in warnings:
                if warning not in warned:
                    progress.log(f"warning: {warning}")
            warned.update(warnings)
            return plan

        with contextlib.nullcontext() if dry_run else job.owned():
            planned = job.plan(check)
            todo = [entry for entry in planned if entry.done is None]
            plan = job.forecast = check(planned)
            if dry_run:
                if (owner := owner_of(folder)) is not None:
                    progress.log(f"warning: {in_use(folder, owner)}")
                try:
                    job.check_recipe()
                except UserError as error:
                    progress.log(f"warning: {error}")
                _show_plan(planned, plan, json)
                if plan.stages:
                    progress.log(brief(plan))
                return
            if todo:
                progress.log(
                    f"{folder}: {len(planned) - len(todo)} of {len(planned)} stages are finished and valid"
                )
                progress.log(brief(plan))
            try:
                if first_use and todo and address is None and recipe.cluster.workers != 0:
                    with METER.phase("compiling kernels"):
                        compile_ahead(progress, recipe.stage_names)
                manifests = job.execute(planned)
            except LostSources as lost:
                _show_result(folder.url, lost.manifests, json, lost.losses)
                raise
            except KeyboardInterrupt:
                progress.log("interrupted; finished work is kept: run the same command to continue")
                raise
    ran = {one.stage: one.resources for one in manifests if one.resources and plan.stage(one.stage)}
    if todo and ran:
        progress.log(beside(ran))
    if not todo:
        progress.log(f"{folder}: everything is finished and valid, nothing to do")
    if profile and (kept := job.read_profile()) is not None:
        progress.log("\n".join(lines(kept)))
    _show_result(folder.url, manifests, json)


def _show_plan(planned: list[Any], plan: RunPlan, json: bool) -> None:
    if json:
        costs = {stage.name: stage.figures().model_dump(mode="json") for stage in plan.stages}
        rows = [{"stage": p.name, "key": p.key, "run": p.done is None, "why": p.why} for p in planned]
        print_json([{**row, "planned": costs.get(str(row["stage"]))} for row in rows])
        return
    for entry in planned:
        state = "finished" if entry.done is not None else "RUN"
        typer.echo(f"{entry.name:<10} {state:<9} {entry.why or 'key and files match'}")


def _show_result(where: str, manifests: list[Any], json: bool, losses: Sequence[Any] = ()) -> None:
    if json:
        stages = {
            m.stage: {
                "key": m.key,
                "counts": m.counts.model_dump(),
                "counters": m.counters,
                "seconds": m.seconds,
                "resources": m.resources and m.resources.model_dump(mode="json"),
            }
            for m in manifests
        }
        lost = {"lost": [loss.model_dump() for loss in losses]} if losses else {}
        print_json({"output": where, "stages": stages, **lost})
        return
    typer.echo(f"{'stage':<10} {'in':>9} {'kept':>9} {'removed':>9} {'quarantined':>11} {'MB kept':>9}")
    for m in manifests:
        if m.partitions:
            c = m.counts
            typer.echo(
                f"{m.stage:<10} {c.docs_in:>9,} {c.kept:>9,} {c.removed:>9,} {c.quarantined:>11,}"
                f" {c.bytes_kept / 1e6:>9.2f}"
            )
    typer.echo(f"output: {where}")


def run_stage(name: str, given: dict[str, Any], config: dict[str, Any] | None = None) -> None:
    """Run the stage `name` on the user's own files. `given`: the arguments of its command, by name; those that not all
    commands share are parameters of the stage. `config`: further keys of the recipe."""
    from corpusmill.common.config import override, validate
    from corpusmill.pipeline.engine.layout import stage_folders
    from corpusmill.schemas.recipe import STAGES, Recipe

    params = dict(given)
    out = params.pop("output")
    source = {
        "paths": params.pop("input"),
        "format": params.pop("input_format" if "input_format" in params else "format"),
        "text_column": params.pop("text_column"),
        "id_column": params.pop("id_column"),
    }
    settings, address, workers = params.pop("set_"), params.pop("scheduler"), params.pop("workers")
    json, quiet, replace = params.pop("json"), params.pop("quiet"), params.pop("replace")
    stages = STAGES[name].chain
    recipe: dict[str, Any] = {
        "name": name, "output": out, "sources": {"input": source}, "stages": stages, **(config or {}),
        name: {key: value for key, value in params.items() if value not in (None, [])},
    }  # fmt: skip
    if workers is not None:
        recipe["cluster"] = {"workers": workers}
    checked = validate(Recipe, override(recipe, settings or []), f"corpusmill {name}")
    _execute(checked, out, address, False, json, quiet, replace, stage_folders(stages, out))
