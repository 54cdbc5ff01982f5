"""What can be known before a run is known before: workers and their environment, credentials, disk, models, evaluation files."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.owner import OWNER
from corpusmill.pipeline.engine.planned import Planned
from corpusmill.pipeline.engine.stage import LocalStage, SourceStage
from corpusmill.schemas.planning import RunPlan
from corpusmill.schemas.recipe import Recipe

# Packages whose version may show in the output.
SAME = (
    "corpusmill",
    "pyarrow",
    "numpy",
    "resiliparse",
    "ftfy",
    "chardet",
    "tokenizers",
    "fasttext-numpy2-wheel",
)
TOO_LITTLE = 0.25  # of the plan, which may be wrong: with less space than this share of it a run is not begun


class Environment(NamedTuple):
    """What a worker finds where it runs; `problem` is the first thing that is missing there, if any."""

    host: str
    directory: str
    versions: dict[str, str]
    problem: str


def preflight(
    recipe: Recipe, output: Folder, workers: Workers, planned: Sequence[Planned], plan: RunPlan, claimed: bool
) -> list[str]:
    """Check what the stages that will run need, here and on every worker of a cluster; warnings.

    `plan`: of what will run. `claimed`: the output is ours, and workers look for the claim there. Raises `UserError` for what would stop the run later.
    """
    todo = [entry for entry in planned if entry.done is None]
    warnings = [warning for entry in todo for warning in entry.stage.check()]
    source = next((entry.stage for entry in planned if isinstance(entry.stage, SourceStage)), None)
    if todo:
        warnings += check_space(output, plan, todo)
    if not claimed:
        check_writable(output)
    if workers.address and todo:
        names = [entry.name for entry in todo if isinstance(entry.stage, SourceStage | LocalStage)]
        samples = source.samples() if source is not None and source.name in names else []
        shared = output / OWNER if claimed else None
        patience = recipe.cluster.patience if claimed else 0.0
        found = workers.everywhere(
            environment, recipe.model_dump_json(), names, samples, shared, patience=patience
        )
        warnings += compare(found)
    return warnings


def check_writable(output: Folder) -> None:
    """Raise `UserError` if nothing can be written to the output; nothing is written to find out."""
    if not output.local:
        next(iter(output.list()), None)  # the bucket is there, and so are credentials
        return
    place = Path(output.url)
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise UserError(f"{output}: {place} is a file; give a folder for the output")
    if not os.access(place, os.W_OK):
        raise UserError(
            f"{output}: {place} cannot be written to; give another output, or change its permissions"
        )


def check_space(output: Folder, plan: RunPlan, todo: Sequence[Planned]) -> list[str]:
    """A warning if the disk of a local output may be too small; raises `UserError` if it certainly is. What an interrupted run
    has written is kept, or written over: it needs no more space."""
    if not output.local:
        return []
    place = Path(output.url)
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    wanted = int(plan.disk_bytes)
    if free >= wanted:
        return []
    wanted -= sum(file.size for entry in todo for file in entry.folder.list())
    if free >= wanted:
        return []
    line = (
        f"{output}: about {_gb(wanted)} will be written for {_gb(plan.text_bytes)} of text, and {_gb(free)} are free on its disk;"
        " give an output on a larger one"
    )
    if free < TOO_LITTLE * wanted:
        raise UserError(line)
    return [line]


def environment(
    recipe_json: str, stages: list[str], samples: list[tuple[str, Folder]], shared: Folder | None
) -> Environment:
    """What this worker has of what the stages need; called there."""
    found = Environment(socket.gethostname(), str(Path.cwd()), _versions(), "")
    try:
        recipe = Recipe.model_validate_json(recipe_json)
        for name in stages:
            load_stage(name, recipe).check()
        for where, file in samples:
            if not file.exists():
                return found._replace(
                    problem=f"{where}: {file} is not there; workers need the same paths, or a URL"
                )
        if shared is not None and not shared.exists():
            return found._replace(
                problem=f"the output {shared.parent} is another folder there; give one that all workers share, or a URL"
            )
    except (UserError, WorkError) as error:
        return found._replace(problem=str(error))
    except Exception as error:  # of a library: whatever it is, the run would meet it
        return found._replace(problem=f"{type(error).__name__}: {error}")
    return found


def compare(found: dict[str, Environment]) -> list[str]:
    """Raise `UserError` for workers that lack something; warn of versions other than the driver's."""
    broken = {address: one for address, one in found.items() if one.problem}
    if broken:
        lines = [
            f"worker {address} on {one.host} (in {one.directory}): {one.problem}"
            for address, one in list(broken.items())[:3]
        ]
        if len(broken) > len(lines):
            lines.append(f"and {len(broken) - len(lines)} more of {len(found)} workers")
        raise UserError("\n".join(lines))
    warnings = []
    for name, own in _versions().items():
        other = Counter(one.versions[name] for one in found.values() if one.versions[name] != own)
        warnings += [
            f"{count} of {len(found)} workers have {name} {its or '(not installed)'}, the driver has {own}: the output may"
            " differ between them"
            for its, count in other.items()
        ]
    return warnings


def _versions() -> dict[str, str]:
    """Of Python and of the packages that make the output; "" for one that is not installed."""
    found = {"python": sys.version.split()[0]}
    for name in SAME:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
