"""The `decontaminate` stage: what of the evaluation sets occurs in the corpus is found once; documents with matches that
count are then removed, cut, or only reported in the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.found import kinds, most
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, Work, local, over_partitions
from corpusmill.pipeline.engine.stage import Context, LocalStage, Outcome, decisions, with_texts
from corpusmill.schemas.manifest import PublishedFile, StageManifest
from corpusmill.schemas.stages import DecontaminateParams
from corpusmill.schemas.tables import KEPT, REMOVED

if TYPE_CHECKING:
    from corpusmill.pipeline.decontaminate.evalsets import EvalFile
    from corpusmill.schemas.recipe import Recipe

NAME = "decontaminate"
NAMED = 5  # matches named in a document's detail
JOINED = 200  # characters between two windows that are cut along with them (the margin of GPT-3's method)
_PARAGRAPH_BREAK = re.compile(r"\n[ \t\r\f\v]*\n\s*")
Row = dict[str, Any]
Clean = Callable[[str], bool]  # whether a text holds nothing that counts


@dataclass(frozen=True)
class Decontamination:
    """Callable: documents to `Outcome`, by the matches of their partition. `clean` looks at cut texts again."""

    params: DecontaminateParams
    matches: pa.Table
    partition: str
    clean: Clean | None = None
    count_words: Callable[[str], int] | None = None

    def __call__(self, docs: pa.Table) -> Outcome:
        acting = self.matches.filter(self.matches["acts"])
        where = pc.index_in(acting["doc_id"], docs["doc_id"])
        if where.null_count:
            raise WorkError(
                f"{NAME}: matches/{self.partition}.parquet was made for other documents; run the stage again"
            )
        by_row: dict[int, list[Row]] = {}
        for row, match in zip(where.to_pylist(), acting.to_pylist(), strict=True):
            by_row.setdefault(row, []).append(match)
        counters: dict[str, int] = {}
        rows = []
        texts: dict[int, str] = {}
        gone = np.zeros(len(docs), bool)
        for row in sorted(by_row):
            matches = sorted(by_row[row], key=lambda m: (m["near"], -m["value"], -m["matched"], m["unit"]))
            decision = self._decision(matches)
            if self.params.action == "cut":
                self._cut(docs["text"][row].as_py(), matches, decision, texts, row)
            elif self.params.action == "remove":
                decision["outcome"] = REMOVED
            gone[row] = decision["outcome"] == REMOVED
            what = "removed" if gone[row] else "cut" if row in texts else "reported"
            for name in (f"documents_{what}", f"source/{matches[0]['source']}/{what}"):
                counters[name] = counters.get(name, 0) + 1
            rows.append(decision)
        kept = with_texts(docs, texts).filter(pa.array(~gone)) if by_row else docs
        return Outcome(kept, decisions(rows), counters=dict(sorted(counters.items())))

    def _decision(self, matches: Sequence[Row]) -> Row:
        """A row of `DECISIONS` about a document that stays; the strongest match comes first."""
        failed: dict[str, Row] = {}
        for match in matches:
            limit = self.params.near_share if match["near"] else self.params.threshold
            rule = rule_of(match)
            entry = {"stage": NAME, "rule": rule, "value": match["value"], "threshold": limit}
            failed.setdefault(rule, entry)
        first = matches[0]
        decision: Row = {
            "doc_id": first["doc_id"], "outcome": KEPT, "stage": NAME, "failed": list(failed.values()),
            "detail": detail(matches),
        }  # fmt: skip
        if self.params.action != "report":
            decision |= {
                name: failed[rule_of(first)][name] for name in ("rule", "value", "threshold")
            }  # fmt: skip
        return decision

    def _cut(self, text: str, matches: Sequence[Row], decision: Row, texts: dict[int, str], row: int) -> None:
        """Cut the spans of all matches; remove the document if too little is left, or the rest still counts."""
        assert self.clean is not None and self.count_words is not None
        cuts = cut_spans(text, matches, self.params.span)
        left = "".join(text[a:b] for a, b in rest(cuts, len(text)))
        decision["edits"] = [
            {"stage": NAME, "kind": f"{NAME}.{part}", "offset": start, "length": stop - start, "written": 0}
            for start, stop, part in cuts
        ]
        words = self.count_words(left)
        if words < self.params.min_left:
            least = float(self.params.min_left)
            short = {"rule": f"{NAME}.too_short", "value": float(words), "threshold": least}
            decision |= {"outcome": REMOVED, **short}
            decision["failed"].append({"stage": NAME, **short})
        elif not self.clean(left):
            decision["outcome"] = REMOVED
        else:
            texts[row] = left
            decision |= {"rule": None, "value": None, "threshold": None}


def rule_of(match: Row) -> str:
    """`decontaminate.question`, or `decontaminate.near_question` of a copy with words changed."""
    return f"{NAME}.{'near_' if match['near'] else ''}{match['part']}"


def detail(matches: Sequence[Row]) -> str:
    """Which items, how much of them, and where, in words; no text of either side."""
    named = []
    for match in matches[:NAMED]:
        first = match["spans"][0]
        others = f" (and {match['items'] - 1} more items)" if match["items"] > 1 else ""
        places = "" if len(match["spans"]) == 1 else f" and {len(match['spans']) - 1} more places"
        named.append(
            f"{match['set']}#{match['item']}{others} {match['part']}: {match['words']} of {match['of']} words"
            f"{' in order' if match['near'] else ''},"
            f" {first['length']} characters at {first['offset']}{places}"
        )
    if len(matches) > NAMED:
        named.append(f"and {len(matches) - NAMED} more")
    return "; ".join(named)


def cut_spans(text: str, matches: Sequence[Row], span: str) -> list[tuple[int, int, str]]:
    """(start, stop, part) of what is cut, in characters, sorted and apart; of parts that meet the stronger is named."""
    wanted = sorted(
        (place["offset"], place["offset"] + place["length"], rank, match["part"])
        for rank, match in enumerate(matches)
        for place in match["spans"]
    )
    if span == "paragraph":
        breaks = [(m.start(), m.end()) for m in _PARAGRAPH_BREAK.finditer(text)]
        starts = [0, *(end for _, end in breaks)]
        end = len(text)
        wanted = [(_before(starts, a), _after(starts, b, end), rank, part) for a, b, rank, part in wanted]
    merged: list[list[Any]] = []
    for start, stop, rank, part in wanted:
        if merged and start <= merged[-1][1] + (JOINED if span == "window" else 0):
            merged[-1][1] = max(merged[-1][1], stop)
            if rank < merged[-1][2]:
                merged[-1][2:] = [rank, part]
        else:
            merged.append([start, stop, rank, part])
    return [(start, stop, part) for start, stop, _, part in merged]


def _before(starts: Sequence[int], place: int) -> int:
    """The start of the paragraph that holds the character at `place`."""
    return starts[int(np.searchsorted(starts, place, side="right")) - 1]


def _after(starts: Sequence[int], place: int, end: int) -> int:
    """Where the paragraph that holds the character before `place` gives way to the next, white space included."""
    following = int(np.searchsorted(starts, place, side="left"))
    return starts[following] if following < len(starts) else end


def rest(cuts: Sequence[tuple[int, int, str]], size: int) -> list[tuple[int, int]]:
    """What lies between the cuts."""
    edges = [0, *(edge for start, stop, _ in cuts for edge in (start, stop)), size]
    return list(zip(edges[::2], edges[1::2], strict=True))


class Decontaminate(LocalStage):
    """Removes or cuts documents that hold items of the evaluation sets in `against`, or only reports them.

    Publishes `index/` (hashes, no text), `hits/`, `matches/` (what of which item stands where), `contamination.json`
    and `touched_items.jsonl`. Hits do not depend on thresholds: to change one searches no text again.
    """

    name = "decontaminate"
    version = "5"
    looks_across = True

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        params: DecontaminateParams = self.params
        if not params.against:
            raise UserError(
                "decontaminate.against: missing: the evaluation files to look for, such as --against evals/"
            )

    @cached_property
    def sources(self) -> list[EvalFile]:
        """The evaluation files with their checksums; looked at once per plan."""
        from corpusmill.pipeline.decontaminate.evalsets import find_files

        return find_files(self.params.against)

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        """Two more passes over the partitions before the documents are taken: hits are found, then judged."""
        count, flow = flow.partitions, replace(flow, in_memory=False)
        works, after = local(self.name, flow, known)
        scan = over_partitions(self.name, "scan", flow, known, puts=2 * count, gets=2 * count)
        judge = Work("judge", count, gets=3 * count, puts=2 * count, driver_bytes=scan.driver_bytes)
        read = Work("matches", 1, gets=count, one_core=True)
        first, *rest = works
        return Forecast([scan, judge, read, replace(first, gets=first.gets + count), *rest], after)

    def check(self) -> list[str]:
        from corpusmill.pipeline.decontaminate.items import read_file, read_note

        readings = (read_file(source, 0, self.params.fields)[1] for source in self.sources)
        notes = [read_note(*pair) for pair in zip(self.sources, readings, strict=True)]
        return [note for note in notes if note is not None]

    def key_params(self) -> dict[str, Any]:
        """The recipe's, with the bytes of the evaluation files in place of where they lie."""
        import unicodedata

        params = super().key_params()
        params.pop("seed")  # nothing here is drawn
        params["against"] = [[source.file.name, source.xxh3] for source in self.sources]
        return {**params, "unicode": unicodedata.unidata_version}

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        counters = manifest.counters
        return (
            f"{counters['items_contaminated']:,} of {counters['items']:,} evaluation items found; documents "
            + (most(kinds(counters, "documents_")) or "removed 0")
        )

    def prepare(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from corpusmill.pipeline.decontaminate.prepare import run

        return run(context, self.params, self.sources, self.version)

    def transform(self, folder: Folder, partition: str) -> Decontamination:
        from corpusmill.pipeline.engine.publish import read_table
        from corpusmill.schemas.tables import MATCHES

        matches = read_table(folder / f"matches/{partition}.parquet").cast(MATCHES)
        if self.params.action != "cut":
            return Decontamination(self.params, matches, partition)
        from corpusmill.pipeline.decontaminate.index import load_record
        from corpusmill.pipeline.decontaminate.judgement import Recheck

        record = load_record(folder)
        if record is None:
            raise WorkError(f"{folder}: its index is missing; run the stage again")
        again = Recheck(folder, record.key, self.params)
        return Decontamination(self.params, matches, partition, again.clean, again.words)


STAGE = Decontaminate
