"""Which groups are validation: a pure function of the groups, what is wanted of each source, and the seed (`choose`);
measured over all partitions, and measured again where too few documents were listed (`decide`); and what the user should
know of the result (`notes`): sources that got less than was wanted, or sides that could not be kept apart by source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.format import percent, quantity
from corpusmill.pipeline.engine.document_hash import hash_ids
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.split.measure import (
    ALL,
    MEMBERS,
    Components,
    Measure,
    Members,
    components_of,
    members,
    merged,
)
from corpusmill.pipeline.split.ranges import measured, ranges_of
from corpusmill.schemas.split import SplitParams, Target
from corpusmill.schemas.tables import GROUPS

I64 = npt.NDArray[np.int64]

GIANT = 0.1  # of a source: a component with more is taken only where there are too few others
MOST = 0.5  # of a source that may be validation where no more is asked for

# Why a component stays in train.
LAST, LARGE, TRAIN_ONLY = "last", "large", "train_only"

MARGIN = 1.25  # of the share that should do
MORE = 8  # times as many documents where it did not
MET = 0.95  # of what was wanted, from which on nothing is reported
_WHY = {
    LARGE: "would take more than half of a source",
    LAST: "would leave a source no train",
    TRAIN_ONLY: "hold documents of a source that is train alone",
}


@dataclass
class Choice:
    """`chosen` bool[U]: by unit, whether it is validation. `wanted`: bytes of validation wanted of each source.
    `passed_over`: of each source, components with documents of it that were looked at and stay in train, by reason.
    `short`: sources whose rows came to an end while documents have none: the choice is not valid, more are needed."""

    made: Components
    chosen: npt.NDArray[np.bool_]
    wanted: dict[str, int]
    passed_over: dict[str, Counter[str]] = field(default_factory=dict)
    short: list[str] = field(default_factory=list)

    @property
    def units(self) -> pa.Array:
        """The validation units, sorted."""
        return self.made.units.filter(pa.array(self.chosen))

    def sources(self) -> dict[str, dict[str, dict[str, int]]]:
        """Per source and split: documents, bytes and groups."""
        made = self.made
        mask = self.chosen[made.of]
        parts = (("docs", made.docs), ("bytes", made.bytes), ("groups", made.groups))
        summary = {
            name: {
                split: {what: int(values[(made.source == number) & part].sum()) for what, values in parts}
                for split, part in (("train", ~mask), ("validation", mask))
            }
            for number, name in enumerate(made.names)
        }
        for number, name in enumerate(made.names):
            rest = (("docs", made.rest_docs), ("bytes", made.rest_bytes), ("groups", made.rest_groups))
            for what, more in rest:
                summary[name]["train"][what] += int(more[number])
        return summary


def choose(made: Components, targets: Mapping[str, Target], seed: int) -> Choice:
    """Per source (in the order of their names) the components with the smallest hash of their least group, until
    they hold the bytes and number the groups that its target wants.

    A component chosen for one source is validation in all of them, and counts towards each. It stays in train where
    a source would lose its last group of train by it, or have more than half of its bytes in validation (more where
    a share asks for more), or is train alone. One with more than a tenth of the source, and than is wanted, is taken
    only where the others do not make the least number; the smallest first. So a source of one component has no
    validation. Components of sources that are validation alone are taken first, under the same conditions for other
    sources than those; the train-alone ones give way.
    """
    work = _Work(made, targets, seed)
    work.take_whole()
    for source, name in enumerate(made.names):
        if targets[name].only == "validation":
            for row in work.rows_of(source).tolist():
                work.offer(source, row, forced=True)
            work.short += [name] if made.rest_docs[source] else []
    for source, name in enumerate(made.names):
        if targets[name].only is None and not work.fill(source):
            work.short.append(name)
    wanted = {name: int(np.ceil(work.wanted[source])) for source, name in enumerate(made.names)}
    return Choice(made, work.chosen[made.component], wanted, work.passed_over, work.short)


class _Work:
    """The state of a choice. By source: `left` groups of train, `have` bytes of validation, of `total`, and the most
    that may be (`limit`)."""

    def __init__(self, made: Components, targets: Mapping[str, Target], seed: int) -> None:
        self.made, count = made, len(made.names)
        self.targets = [targets[name] for name in made.names]
        self.key = hash_ids(made.units, seed)
        self.by = np.argsort(made.of, kind="stable")  # rows of component c: by[starts[c]:starts[c + 1]]
        self.starts = np.searchsorted(made.of[self.by], np.arange(len(made.units) + 1))
        self.chosen = np.zeros(len(made.units), bool)
        self.left, self.total = made.rest_groups.copy(), made.rest_bytes.copy()
        np.add.at(self.left, made.source, made.groups)
        np.add.at(self.total, made.source, made.bytes)
        self.have, self.count = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.wanted = np.array(
            [target.wanted(int(total)) for target, total in zip(self.targets, self.total, strict=True)], float
        )
        only = np.array([str(target.only or "") for target in self.targets], dtype="<U10")
        self.validation_only, self.train_only = only == "validation", only == "train"
        shares = np.array([target.share if target.size is None else 0.0 for target in self.targets], float)
        self.limit = np.maximum(shares, MOST) * self.total
        self.passed_over: dict[str, Counter[str]] = {}
        self.short: list[str] = []

    def rows_of(self, source: int) -> I64:
        """The rows of a source that are not validation yet, in the order of the hash."""
        mine = np.flatnonzero((self.made.source == source) & ~self.chosen[self.made.of])
        return mine[np.lexsort((self.made.of[mine], self.key[self.made.of[mine]]))]

    def take_whole(self) -> None:
        """Take all components that have documents of validation-alone sources only; these sources have no limits, and
        no counts are kept of them."""
        mixed = np.ones(len(self.chosen), bool)
        mixed[self.made.of] = False
        mixed[self.made.of[~self.validation_only[self.made.source]]] = True
        self.chosen = ~mixed

    def offer(self, source: int, row: int, forced: bool = False) -> bool:
        """Take the component of a row unless something is against it; whether it is validation now."""
        component = int(self.made.of[row])
        if self.chosen[component]:
            return True
        rows = self.by[self.starts[component] : self.starts[component + 1]]
        why = self._against(rows, forced)
        if why:
            self.passed_over.setdefault(self.made.names[source], Counter())[why] += 1
            return False
        self.chosen[component] = True
        touched = self.made.source[rows]
        self.left[touched] -= self.made.groups[rows]
        self.have[touched] += self.made.bytes[rows]
        self.count[touched] += self.made.groups[rows]
        return True

    def _against(self, rows: I64, forced: bool) -> str | None:
        """Why the component with these rows cannot be validation."""
        rows = rows[~self.validation_only[self.made.source[rows]]]
        source = self.made.source[rows]
        if not forced and self.train_only[source].any():
            return TRAIN_ONLY
        if (self.left[source] <= self.made.groups[rows]).any():
            return LAST
        if (self.have[source] + self.made.bytes[rows] > self.limit[source]).any():
            return LARGE
        return None

    def fill(self, source: int) -> bool:
        """Choose for one source; False where that takes more rows than there are."""
        wanted, least = self.wanted[source], self.targets[source].min_documents
        if wanted <= 0:
            return True
        rows = self.rows_of(source)
        giant = self.made.bytes[rows] > max(wanted, GIANT * self.total[source])
        for row in rows[~giant].tolist():
            if self.have[source] >= wanted and self.count[source] >= least:
                return True
            if self.key[self.made.of[row]] > self.made.complete[source]:
                break  # others come before it
            self.offer(source, row)
        if self.have[source] >= wanted and self.count[source] >= least:
            return True
        if self.made.rest_docs[source]:
            return False
        by_size = rows[giant][np.argsort(self.made.bytes[rows[giant]], kind="stable")]
        for row in by_size.tolist():
            if self.count[source] >= least:
                return True
            self.offer(source, row)
        return True


def decide(context: Context, params: SplitParams, seed: int) -> tuple[Choice, pa.Table]:
    """The choice, and the groups of validation by source (`measure.MEMBERS`)."""
    domain = params.by == "domain"
    sizes = [part.text_bytes for part in context.partitions]
    ranges = 1 if domain else ranges_of(context)  # hosts join clusters, which then belong to no range
    # Document partitions may bring sources along that the recipe does not name.
    thresholds = {name: _threshold(params.target(name)) for name in params.per_source}
    usual = _threshold(params.target(""))
    while True:
        task = Measure(domain, seed, thresholds, usual)
        found = (
            context.scheduler.map(task, context.partitions, "split", sizes)
            if ranges == 1
            else measured(context, task, sizes, ranges)
        )
        rows, rest = merged(found, seed)
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
    """The hash up to which documents that are alone are listed at first: a share of them that should do. Of a size it is
    found out."""
    if target.only == "validation":
        return ALL
    return min(ALL, int(MARGIN * target.share * ALL)) if target.only is None else 0


def notes(choice: Choice, params: SplitParams) -> list[str]:
    """A line for each thing that the user should know."""
    lines = []
    largest, sources = choice.made.largest, choice.sources()
    total = sum(side["bytes"] for splits in sources.values() for side in splits.values())
    if largest is not None and total and largest["bytes"] >= 0.1 * total:
        named = ", ".join(largest["largest_hosts"])
        rest = largest["hosts"] - len(largest["largest_hosts"])
        lines.append(
            f"{largest['docs']:,} documents, {percent(largest['bytes'], total)} of the text, hang together by host and"
            f" duplicate cluster and are never parted: {named}{f' and {rest:,} more hosts' if rest else ''}"
        )
    for name, splits in sources.items():
        line = _source(name, splits, choice, params)
        if line:
            lines.append(f"{name}: {line}")
    return lines


def _source(name: str, splits: dict[str, dict[str, int]], choice: Choice, params: SplitParams) -> str | None:
    train, validation = splits["train"], splits["validation"]
    why = _reasons(choice.passed_over.get(name, Counter()))
    target = params.target(name)
    if target.only == "validation":
        if not train["docs"]:
            return None
        return f"{_documents(train['docs'], 'stays', 'stay')} in train although it is validation alone{why}"
    if target.only == "train":
        if not validation["docs"]:
            return None
        return (
            f"{_documents(validation['docs'], 'is', 'are')} validation although it is train alone:"
            " it hangs together with a source that is validation alone"
        )
    wanted = choice.wanted[name]
    total = train["bytes"] + validation["bytes"]
    if validation["bytes"] > wanted + GIANT * total:
        return (
            f"validation has {percent(validation['bytes'], total)} of the text, wanted were {percent(wanted, total)}:"
            " it comes in few large components, or hangs together with other sources' validation"
        )
    if not wanted or (validation["bytes"] >= MET * wanted and validation["groups"] >= target.min_documents):
        return None
    if not validation["docs"]:
        one = train["groups"] == 1 or _components(choice, name) == 1
        return "no validation" + (
            ": all of it is one component, which cannot be parted" if one else why or ""
        )
    return (
        f"validation has {validation['bytes']:,} bytes in {validation['groups']:,} groups; wanted were {wanted:,}"
        f" in {target.min_documents:,} or more{why}"
    )


def _components(choice: Choice, name: str) -> int:
    number = choice.made.names.index(name)
    return int((choice.made.source == number).sum() + choice.made.rest_groups[number])


def _reasons(passed_over: Counter[str]) -> str:
    parts = [f"{count:,} {_WHY[why]}" for why, count in sorted(passed_over.items())]
    return f"; of the components looked at {', '.join(parts)}" if parts else ""


def _documents(count: int, one: str, many: str) -> str:
    return quantity(count, f"document {one}", f"documents {many}")
