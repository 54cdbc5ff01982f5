"""The choice over all partitions: measured, chosen, and measured again where too few documents were told."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.engine.document_hash import GROUPS
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.split.choose import Choice, choose
from corpusmill.pipeline.split.components import components_of
from corpusmill.pipeline.split.measure import ALL, MEMBERS, Measure, Members, members, merged
from corpusmill.schemas.split import SplitParams, Target

MARGIN = 1.25  # of the share that should do
MORE = 8  # times as many documents where it did not


def decide(context: Context, params: SplitParams, seed: int) -> tuple[Choice, pa.Table]:
    """The choice, and the groups of validation by source (`measure.MEMBERS`)."""
    domain = params.by == "domain"
    sizes = [part.text_bytes for part in context.partitions]
    # Document partitions may bring sources along that the recipe does not name.
    thresholds = {name: _threshold(params.target(name)) for name in params.per_source}
    usual = _threshold(params.target(""))
    while True:
        task = Measure(domain, seed, thresholds, usual)
        rows, rest = merged(context.scheduler.map(task, context.partitions, "split", sizes), seed)
        made = components_of(rows, rest)
        choice = choose(made, {name: params.target(name) for name in made.names}, seed)
        if not choice.short:
            break
        complete = dict(zip(rest["source"].to_pylist(), rest["complete"].to_pylist(), strict=True))
        for name, splits in choice.sources().items():
            if name in choice.short:
                share = choice.wanted[name] / max(1, sum(side["bytes"] for side in splits.values()))
                known = max(complete[name], ALL >> 10)
                thresholds[name] = min(ALL, max(MORE * known, int(MARGIN * share * ALL)))
    if domain:
        work = context.folder / "scratch"
        file = publish_table(work, "units.parquet", pa.Table.from_arrays([choice.units], schema=GROUPS))
        listing = Members(domain, work, file)
        tables = context.scheduler.map(listing, context.partitions, "split: validation", sizes)
        return choice, members(tables)
    chosen = rows.filter(pc.is_in(rows["unit"], value_set=choice.units))
    table = pa.table([chosen[name] for name in ("source", "unit", "docs", "bytes")], schema=MEMBERS)
    return choice, members([table])


def _threshold(target: Target) -> int:
    """The hash up to which documents that are alone are told at first: a share of them that should do. Of a size it is
    found out."""
    if target.only == "validation":
        return ALL
    return min(ALL, int(MARGIN * target.share * ALL)) if target.only is None else 0
