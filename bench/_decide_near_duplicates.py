"""Near-duplicates of code and short texts: the presets `code` and `short` beside tools that compare runs of 5 words.

Recall is the share of planted copies that a tool puts in one cluster with their original, one of the two being removed.
Precision is the share of removed texts that are a copy of the one that stays for them: planted, or, of code, of at least 70 %
of the same lines with names and literals aside (from which BigCloneBench calls files strong type-3 clones), or, of short
texts where some are natural copies, with at least 60 % of the words in common.

`--labelled FILE`: JSON lines `{"id": …, "text": …, "cluster": …}`; texts of one `cluster` are duplicates of each other, a text
without one of none. Pairs in one cluster of the tool are judged; give `"preset": "code"` or `"short"` in the first line to
judge that one alone.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench import dedup_labelled, labelled
from bench._decisions import Row
from bench._near_duplicate_sets import Planted, code, short, templates
from bench.labelled import Labelled, pair

WORDS = "word 5-grams (preset corpusmill)"
WANTED = {"recall": 0.95, "precision": 0.98}
Found = dict[str, Any]  # tool -> {"clusters", "removed", "survivors"}


def rows(given: Path | None) -> list[Row]:
    """The rows of the table."""
    if given is not None:
        return _own(given)
    made = [row for some in (code(),) for row in _judged(some, "code")]
    made += [row for some in short() for row in _judged(some, "short")]
    made.append(_templates())
    return [*made, *_prose()]


def _find(texts: dict[str, str], preset: str) -> Found:
    """What each tool makes of the texts."""
    every = dedup_labelled.find(texts, [("ours", {"preset": preset}), (WORDS, {})])
    found: Found = {}
    for name, answer in every.items():
        if isinstance(answer, str):
            print(f"{name}: not measured: {answer}")
        else:
            found[name] = answer
    for answer in found.values():
        answer.setdefault("survivors", _survivors(answer))
    return found


def _survivors(answer: dict[str, Any]) -> dict[str, str]:
    """Of each removed text the first of its cluster that stays."""
    gone = set(answer["removed"])
    stays: dict[str, str] = {}
    for members in answer["clusters"]:
        kept = [member for member in members if member not in gone]
        if kept:
            stays |= {member: kept[0] for member in members if member in gone}
    return stays


def _judged(some: Planted, preset: str) -> list[Row]:
    found = _find(some.texts, preset)
    tools = [name for name in found if name != "ours"]
    hits = {name: _hits(answer, some) for name, answer in found.items()}
    made = []
    for kind in dict.fromkeys(some.edit.values()):
        copies = [copy for copy, edit in some.edit.items() if edit == kind]
        recall = {name: sum(copy in hits[name] for copy in copies) / len(copies) for name in found}
        made.append(
            Row(
                f"{preset}, recall: {kind}", f"{len(copies)} copies, {some.name}", recall["ours"],
                {name: recall[name] for name in tools}, WANTED["recall"],
            )
        )  # fmt: skip
    right = {name: _right(answer, some) for name, answer in found.items()}
    removed = {name: len(answer["survivors"]) for name, answer in found.items()}
    precision = {name: sum(right[name].values()) / max(1, removed[name]) for name in found}
    planted = {name: right[name]["planted"] for name in found}
    note = f"{removed['ours']} removed: {planted['ours']} planted, {right['ours']['natural']} found alike besides"
    made.append(
        Row(
            f"{preset}, precision of removals", f"{len(some.texts)} texts, {some.name}", precision["ours"],
            {name: precision[name] for name in tools}, WANTED["precision"], note,
        )
    )  # fmt: skip
    total = {name: len(hits[name]) / max(1, len(some.edit)) for name in found}
    f1 = {
        name: 2 * precision[name] * total[name] / max(1e-9, precision[name] + total[name]) for name in found
    }
    made.append(
        Row(
            f"{preset}, F1 of all edits", f"{len(some.edit)} copies, {some.name}", f1["ours"],
            {name: f1[name] for name in tools}, None, f"recall {total['ours']:.3f}",
        )
    )  # fmt: skip
    return made


def _hits(answer: dict[str, Any], some: Planted) -> set[str]:
    """The copies that are in one cluster with their original, of which at most one stays."""
    cluster = {member: number for number, members in enumerate(answer["clusters"]) for member in members}
    gone = set(answer["removed"])
    return {
        copy
        for copy, original in some.original.items()
        if copy in cluster and cluster[copy] == cluster.get(original) and (copy in gone or original in gone)
    }


def _right(answer: dict[str, Any], some: Planted) -> dict[str, int]:
    counts = {"planted": 0, "natural": 0}
    for gone, stays in answer["survivors"].items():
        a, b = (some.original.get(name, name) for name in (gone, stays))
        if a == b:
            counts["planted"] += 1
        elif some.alike(a, b):
            counts["natural"] += 1
    return counts


def _templates() -> Row:
    """No right or wrong: how far the preset goes with texts of one template."""
    texts = {str(number): text for number, text in enumerate(dict.fromkeys(templates()))}
    gone = {name: len(answer["removed"]) for name, answer in _find(texts, "short").items()}
    share = {name: 1 - count / len(texts) for name, count in gone.items()}
    ours = share.pop("ours")
    return Row(
        "short, kept of one template with other phrases", f"{len(texts)} identity_templates", ours, share, None,
        "neither right nor wrong",
    )  # fmt: skip


def _prose() -> list[Row]:
    """McCormick's articles, for the default preset."""
    some = labelled.mccormick(2_500)
    found = dedup_labelled.find(some.texts)
    ours = found.pop(dedup_labelled.OURS[0][0])
    found = {name: answer for name, answer in found.items() if not isinstance(answer, str)}
    return [
        _f1(
            "prose (preset corpusmill), F1 of pairs",
            f"McCormick, {len(some.texts)} articles",
            some,
            ours,
            found,
        )
    ]


def _f1(decision: str, judged_on: str, some: Labelled, ours: dict[str, Any], others: Found) -> Row:
    def score(answer: dict[str, Any]) -> labelled.Scores:
        return labelled.score(labelled.pairs_of(answer["clusters"]), some.duplicates)

    mine = score(ours)
    return Row(
        decision, judged_on, mine.f1, {name: score(answer).f1 for name, answer in others.items()}, None,
        f"precision {mine.precision:.3f}, recall {mine.recall:.3f}",
    )  # fmt: skip


def _own(file: Path) -> list[Row]:
    """F1 of pairs on the user's own file."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts = {str(line["id"]): str(line["text"]) for line in lines}
    clusters = defaultdict(list)
    for line in lines:
        if line.get("cluster") is not None:
            clusters[str(line["cluster"])].append(str(line["id"]))
    duplicates = {pair(a, b) for members in clusters.values() for a, b in itertools.combinations(members, 2)}
    some = Labelled(texts, duplicates, set())
    made = []
    for preset in [lines[0]["preset"]] if lines and lines[0].get("preset") else ["code", "short"]:
        found = _find(texts, preset)
        ours = found.pop("ours")
        made.append(
            _f1(f"preset {preset}, F1 of pairs", f"{file.name}, {len(texts)} texts", some, ours, found)
        )
    return made
