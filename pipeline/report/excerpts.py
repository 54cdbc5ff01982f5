"""The texts that the report shows: kept, removed by each rule, pairs of copies, and tags in their context.

They are fetched by doc_id, and all are redacted first, also those that were removed before `redact` read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.checkpoints import parse
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.stage import Context, LocalStage, Scheduler
from corpusmill.pipeline.report.curves import Curve
from corpusmill.pipeline.report.distributions import Plan, Seen
from corpusmill.pipeline.report.survey import Places, Survey, read_columns
from corpusmill.schemas.manifest import EXPIRED, Expired
from corpusmill.schemas.private import PRIVATE, SET
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.stages import DEFAULT_KINDS, PiiKind, ReportParams
from corpusmill.schemas.tables import DOCUMENTS, KEPT, REMOVED

# A secret that the end of an excerpt would cut in half goes unseen: this much more is redacted, then dropped.
MARGIN = 300
PAIR_SEARCH = 50_000  # characters of two copies in which their first difference is looked for
Row = dict[str, Any]
Wanted = dict[bytes, tuple[int, int]]  # doc_id -> first character wanted, and one past the last
_TAG = re.compile(r"<[^<>\n]{1,60}>|\[[^\[\]\n]{1,60}\]|\S{1,60}")


def fetch(
    scheduler: Scheduler, folder: Folder, partitions: list[str], wanted: Wanted, label: str
) -> dict[bytes, str]:
    """doc_id -> the wanted characters of its text in `folder`'s documents; unknown ids are left out."""
    if not wanted:
        return {}
    found: dict[bytes, str] = {}
    for part in scheduler.map(partial(_fetch, folder, wanted), partitions, label):
        found.update(part)
    return found


def _fetch(folder: Folder, wanted: Wanted, name: str) -> dict[bytes, str]:
    file = folder / f"documents/{name}.parquet"
    ids = read_columns(file, ["doc_id"])["doc_id"]
    hits = pc.indices_nonzero(pc.is_in(ids, pa.array(sorted(wanted), ids.type)))
    if not len(hits):
        return {}
    texts = read_columns(file, ["text"])["text"].take(hits).to_pylist()
    return {i: text[slice(*wanted[i])] for i, text in zip(ids.take(hits).to_pylist(), texts, strict=True)}


def masked(
    recipe: Recipe,
    redacted: Folder | None,
    texts: dict[bytes, str],
    chars: int,
    kinds: Sequence[PiiKind] = (),
) -> dict[bytes, str]:
    """`texts` with personal data and secrets replaced by tags, then cut to `chars` characters: of `kinds`, or of every kind
    that a pattern finds, and whatever else the recipe redacts (names, private addresses).

    The run's own redactor does it, which knows what was recognised elsewhere in the run (`redacted`: its folder, if it has one, with a set).
    A text that it will not pass on is left out.
    """
    if not texts:
        return {}
    tags: dict[str, Any] = {"replacement": "tag", "replacements": {}}
    if kinds:
        tags |= {"kinds": list(kinds), "model": None}
    else:
        tags["kinds"] = list(dict.fromkeys((*recipe.redact.kinds, *DEFAULT_KINDS)))
    if redacted is None or not (redacted / PRIVATE / SET).exists():
        tags["everywhere"] = []
    safe = recipe.model_copy(update={"redact": recipe.redact.model_copy(update=tags)})
    stage = load_stage("redact", safe)
    assert isinstance(stage, LocalStage)
    ids = sorted(texts)
    filled = {"doc_id": ids, "text": [texts[i] for i in ids], "text_hash": ids, "source": [""] * len(ids)}
    filled["locator"] = [""] * len(ids)
    columns = [
        pa.array(filled[f.name], f.type) if f.name in filled else pa.nulls(len(ids), f.type)
        for f in DOCUMENTS
    ]
    kept = stage.transform(redacted or Folder("."), "report")(
        pa.Table.from_arrays(columns, schema=DOCUMENTS)
    ).kept
    return {
        i: cut(text, chars)
        for i, text in zip(kept["doc_id"].to_pylist(), kept["text"].to_pylist(), strict=True)
    }


NAMED: Final[tuple[PiiKind, ...]] = ("email", "url_credential")  # what the name of a file may hold


def hide_addresses(context: Context, groups: Iterable[list[Row]]) -> None:
    """Replace addresses in the places and details of rows by tags: a mailbox is often a folder's name."""
    rows = [row for group in groups for row in group]
    names = sorted({row[key] for row in rows for key in ("locator", "detail") if row.get(key)})
    if not names:
        return
    numbered = {at.to_bytes(16, "big"): name for at, name in enumerate(names)}
    safe = masked(context.recipe, context.previous.get("redact"), numbered, max(map(len, names)) * 2, NAMED)
    found = {name: safe.get(at, "") for at, name in numbered.items()}
    for row in rows:
        row.update({key: found.get(row[key], row[key]) for key in ("locator", "detail") if row.get(key)})


def cut(text: str, chars: int) -> str:
    """The first `chars` characters, an ellipsis for the rest."""
    if len(text) <= chars:
        return text
    space = text.rfind(" ", chars - 20, chars + 1)  # not in mid-word, where words are of common length
    return text[: space if space > 0 else chars].rstrip() + " …"


def window(a: str, b: str, chars: int) -> tuple[str, str]:
    """Two copies, each `chars` characters from shortly before their first difference on."""
    same = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        same += 1
    start = max(0, same - chars // 3)
    start = a.find(" ", start, same) + 1 if start else 0  # copies are alike up to here: one place fits both
    lead = "… " if start else ""
    return lead + cut(a[start:], chars), lead + cut(b[start:], chars)


def marked(a: str, b: str) -> tuple[list[tuple[bool, str]], list[tuple[bool, str]]]:
    """Both texts as runs of (differs, text), compared word by word."""
    words_a, words_b = re.findall(r"\s*\S+|\s+", a), re.findall(r"\s*\S+|\s+", b)
    left: list[tuple[bool, str]] = []
    right: list[tuple[bool, str]] = []
    for kind, i, j, k, m in SequenceMatcher(None, words_a, words_b, autojunk=False).get_opcodes():
        if i < j:
            left += _run(kind != "equal", "".join(words_a[i:j]))
        if k < m:
            right += _run(kind != "equal", "".join(words_b[k:m]))
    return left, right


def _run(differs: bool, text: str) -> list[tuple[bool, str]]:
    """A run of words; the white space before one that differs is no part of it."""
    bare = text.lstrip() if differs else text
    space = text[: len(text) - len(bare)]
    return [(False, space), (differs, bare)] if space else [(differs, bare)]


def tag_in_context(text: str, at: int) -> dict[str, str]:
    """What stands in place of a removed span, `at` characters into an excerpt of the redacted text."""
    found = _TAG.match(text, at)
    end = found.end() if found else at
    return {"before": text[:at], "tag": text[at:end], "after": text[end:]}


AROUND = 90  # characters of context on either side of a redacted span
NEAR_CHARS = 240  # of a document near a threshold


def examples(
    context: Context, places: Places, partitions: list[str], found: Survey, seen: Seen, judged: Plan,
    params: ReportParams,
) -> dict[str, Any]:  # fmt: skip
    """What `report.json` holds as `samples`. Chosen by doc_id, a hash: a fair draw, the same in every run."""
    kept = [row for (outcome, _, _), rows in sorted(found.picks.items()) if outcome == KEPT for row in rows]
    removed = {
        key: [row for row in rows if row["duplicate_of"] is None]
        for key, rows in sorted(found.picks.items())
        if key[0] == REMOVED and key[1] != "decontaminate"
    }
    pairs = {row["doc_id"]: row for row in [*found.pairs, *found.typical]}
    edited = [
        (kind, row)
        for (what, _, kind), rows in sorted(found.picks.items())
        if what == "edited"
        for row in rows
    ]

    excerpt = (0, params.sample_chars + MARGIN)
    near = [(what, row) for (_, what), rows in seen.nearest.items() for row in rows]
    final: Wanted = {row["doc_id"]: excerpt for row in [*kept, *(row for what, row in near if what == KEPT)]}
    gone = [*(row for rows in removed.values() for row in rows), *(row for what, row in near if what != KEPT)]
    raw: Wanted = {row["doc_id"]: excerpt for row in gone}
    copies: Wanted = {
        i: (0, PAIR_SEARCH) for row in pairs.values() for i in (row["doc_id"], row["duplicate_of"])
    }
    tags: Wanted = {row["doc_id"]: _around(row["offset"]) for _, row in edited}

    expired = set()

    def texts(folder: Any, wanted: Wanted, chars: int) -> dict[bytes, str]:
        if (gone := parse(Expired, folder / EXPIRED)) is not None:
            if folder.name not in expired:
                context.log(
                    f"report: no examples of {folder.name}: its text was deleted on purpose ({gone.why})"
                )
            expired.add(folder.name)
            return {}
        found = fetch(context.scheduler, folder, partitions, wanted, "report: samples")
        return masked(context.recipe, context.previous.get("redact"), found, chars)

    kept_texts = texts(places.kept, final, params.sample_chars)
    removed_texts = texts(places.ingested, raw, params.sample_chars)
    copy_texts = texts(places.ingested, copies, PAIR_SEARCH)
    tag_texts = fetch(
        context.scheduler, places.kept, partitions, tags, "report: samples"
    )  # redacted as they stand
    return {
        "kept": _shown(kept, kept_texts),
        "removed": [
            {"stage": stage, "rule": rule, "texts": _shown(rows, removed_texts)}
            for (_, stage, rule), rows in removed.items()
            if rows
        ],
        "pairs": [
            _pair(row, copy_texts, params.sample_chars)
            for row in sorted(pairs.values(), key=lambda row: (row["jaccard"], row["doc_id"]))
            if {row["doc_id"], row["duplicate_of"]} <= copy_texts.keys()
        ],
        "near": _near(seen, judged, kept_texts, removed_texts),
        "tags": _tags(context, edited, tag_texts),
    }


def _near(seen: Seen, judged: Plan, kept: dict[bytes, str], removed: dict[bytes, str]) -> list[Row]:
    """By rule: what it failed last, and what it all but failed; one whose text the redactor kept back is left out."""

    def shown(curve: Curve, outcome: str, texts: dict[bytes, str]) -> list[Row]:
        return [
            {
                "doc_id": row["doc_id"].hex(), **{n: row[n] for n in ("source", "locator", "value", "others")},
                "text": cut(texts[row["doc_id"]], NEAR_CHARS),
            }
            for row in seen.nearest.get((curve.rule, outcome), [])
            if row["doc_id"] in texts
        ]  # fmt: skip

    return [
        {
            "rule": one.rule.rule, "signal": one.signal, "comparison": one.comparison, "threshold": one.threshold,
            "removed": shown(one, REMOVED, removed), "kept": shown(one, KEPT, kept),
        }
        for one in judged.curves
    ]  # fmt: skip


def _around(offset: int) -> tuple[int, int]:
    return max(0, offset - AROUND), offset + 2 * AROUND


def _tags(context: Context, edited: list[tuple[str, Row]], texts: dict[bytes, str]) -> list[Row]:
    """Replaced spans in their context, which may hold what the recipe does not redact."""
    tags = [_tag(kind, row, texts[row["doc_id"]]) for kind, row in edited if row["doc_id"] in texts]
    sides = [(tag, side) for tag in tags for side in ("before", "after")]
    numbered = {at.to_bytes(16, "big"): tag[side] for at, (tag, side) in enumerate(sides)}
    safe = masked(context.recipe, context.previous.get("redact"), numbered, 4 * AROUND)
    for at, (tag, side) in enumerate(sides):
        tag[side] = safe.get(at.to_bytes(16, "big"), "")
    return tags


def _tag(kind: str, row: Row, text: str) -> Row:
    shown = tag_in_context(text, row["offset"] - _around(row["offset"])[0])
    place = {"kind": kind, "doc_id": row["doc_id"].hex(), "source": row["source"], "locator": row["locator"]}
    before = shown["before"]
    if (
        row["offset"] > AROUND
    ):  # the excerpt begins somewhere in the text: not in mid-word, if it can be helped
        before = "… " + before[before.find(" ") + 1 :]
    return {**place, **shown, "before": before, "after": cut(shown["after"], AROUND)}


def _shown(rows: list[Row], texts: dict[bytes, str]) -> list[Row]:
    """Rows with their texts; one whose text the redactor kept back is left out."""
    names = ("source", "locator", "value", "threshold", "detail")
    return [
        {"doc_id": row["doc_id"].hex(), **{name: row[name] for name in names}, "text": texts[row["doc_id"]]}
        for row in rows
        if row["doc_id"] in texts
    ]


def _pair(row: Row, texts: dict[bytes, str], chars: int) -> Row:
    left, right = window(texts[row["doc_id"]], texts[row["duplicate_of"]], chars)
    removed, kept = marked(left, right)
    return {
        "jaccard": row["jaccard"],
        "source": row["source"],
        "removed": row["doc_id"].hex(),
        "kept": row["duplicate_of"].hex(),
        "removed_text": removed,
        "kept_text": kept,
    }
