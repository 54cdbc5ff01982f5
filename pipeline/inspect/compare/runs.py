"""Two finished runs side by side: where their tables lie, and in what their recipes, stages and rules differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from corpusmill.common.config import differences
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.layout import read_record, recipe_of
from corpusmill.pipeline.engine.token_rates import TokenRates, token_rates
from corpusmill.pipeline.inspect.compare.join import Side
from corpusmill.pipeline.inspect.what_if.question import matters
from corpusmill.schemas.manifest import StageManifest
from corpusmill.schemas.recipe import LEDGER, Recipe, is_local


@dataclass(frozen=True)
class Compared:
    """One of the runs: its recipe, its stages in order, and its tables."""

    url: str
    recipe: Recipe
    stages: dict[str, StageManifest]
    side: Side
    rows: int  # of the ledger
    rates: TokenRates | None

    @property
    def tokens(self) -> dict[str, int]:
        """Source -> exact tokens of what was kept; empty without shards."""
        return self.rates.exact if self.rates else {}


def open_run(url: str) -> Compared:
    """A finished run, or the output of a stage's command; raises `UserError` if there is none with a ledger, or a
    stage of it is not finished, `WorkError` if one was changed since."""
    recipe, _ = recipe_of(url)
    record = read_record(Folder(url))
    assert record is not None  # `recipe_of` read it
    folders = {one.stage: one.folder for one in record.stages}
    manifests = record.manifests()
    if LEDGER not in manifests:
        raise UserError(f"{url}: no ledger there, which says what became of each document; give a whole run")
    files = manifests[LEDGER].files
    names = [file.path.removesuffix(".parquet") for file in files]
    documents = folders[[stage for stage in manifests if is_local(stage)][-1]]
    there = not names or (documents / f"documents/{names[0]}.parquet").exists()
    return Compared(
        url=url,
        recipe=recipe,
        stages=manifests,
        side=Side(folders[LEDGER], documents if there else None, names),
        rows=sum(file.rows or 0 for file in files),
        rates=token_rates(folders.get("shard"), folders.get("tokenizer")),
    )


def changed_keys(a: Compared, b: Compared) -> dict[str, dict[str, Any]]:
    """Dotted key of the recipe -> its value in either run, where they differ and it matters. A rule's threshold that one
    recipe does not set is the one in force."""
    found = differences(matters(a.recipe), matters(b.recipe))
    rows = {key: {"a": old, "b": new} for key, (old, new) in found.items()}
    for side, limits in (("a", thresholds(a)), ("b", thresholds(b))):
        for (_, rule), limit in limits.items():
            row = rows.get(f"filter.thresholds.{rule}")
            if row is not None and row[side] is None:
                row[side] = limit
    return rows


def stages(a: Compared, b: Compared) -> list[dict[str, Any]]:
    """Each stage of either run, and what is other in it: its version, its parameters, or only what it read; null if it
    published the same bytes."""
    rows = []
    for name in dict.fromkeys([*a.stages, *b.stages]):
        one, other = a.stages.get(name), b.stages.get(name)
        if one is None or other is None:
            differs: str | None = "only in A" if other is None else "only in B"
        elif one.key == other.key:
            differs = None
        elif one.version != other.version:
            differs = "version"
        else:
            differs = "parameters" if one.params != other.params else "input"
        versions = {side: run.version if run else None for side, run in (("a", one), ("b", other))}
        rows.append({"stage": name, "version": versions, "differs": differs})
    return rows


def thresholds(run: Compared) -> dict[tuple[str, str], float]:
    """(stage, rule) -> the threshold in force, of the filter's rules that have one."""
    manifest = run.stages.get("filter")
    rules = manifest.params.get("rules") or () if manifest else ()
    return {
        ("filter", str(rule["name"])): rule["threshold"]
        for rule in rules
        if isinstance(rule, dict) and rule.get("threshold") is not None
    }
