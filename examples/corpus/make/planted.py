"""The planted set: known faults with their labels, made from a seed and from the sources beside it."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path

import orjson

from . import web
from .common import Record, gz, read_jsonl_gz, to_jsonl, write
from .copies import copies
from .noise import mojibake, non_english, short, spam, toxic
from .pii import pii, without_values
from .sources import HELD_OUT

SEED = 20240301
MOJIBAKE = 12
CONTROLS = 4


def plant(corpus: Path, out: Path, seed: int = SEED) -> int:
    """Reads `corpus`, writes sources/planted/* and labels.json under `out`; the same bytes every time.

    Every kind has its own generator, so that a change to one kind leaves the others as they are.
    """
    held_out = read_jsonl_gz(corpus / HELD_OUT)
    english = [p for p in held_out if p["language"] == "en"]
    foreign = [p for p in held_out if p["language"] != "en"]
    personal, taken = pii(english, random.Random(f"{seed}/pii"))
    records = [
        *copies(corpus / "sources", random.Random(f"{seed}/copies")),
        *spam(random.Random(f"{seed}/spam")),
        *short(random.Random(f"{seed}/short")),
        *personal,
        *toxic(random.Random(f"{seed}/toxic")),
        *non_english(foreign),
        *mojibake(english[taken : taken + MOJIBAKE]),
    ]
    # Copies must not stand in the order of their similarity, nor faults in a block.
    random.Random(f"{seed}/order").shuffle(records)
    travelling = [{**r, "planted": without_values(r["planted"])} for r in records]
    write(out / "sources/planted/planted.jsonl.gz", gz(to_jsonl(travelling)))

    rest = english[taken + MOJIBAKE :][:CONTROLS]
    lines = broken(rest)
    write(out / "sources/planted/broken.jsonl", b"".join(line + b"\n" for line, _, _ in lines))
    summary = labels(records, [(reason, id_) for _, reason, id_ in lines], seed)
    write(out / "labels.json", orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n")
    return len(records) + len(lines)


def broken(controls: list[Record]) -> list[tuple[bytes, str, str | None]]:
    """Lines with the reason why each is to be quarantined; the good lines between them must be kept."""
    good = [
        (orjson.dumps({"id": f"control-{n:03d}", "text": p["text"]}), "good", f"control-{n:03d}")
        for n, p in enumerate(controls, 1)
    ]
    sentence = b"The paper was found in a drawer and nobody could say who had written it."
    bad: list[tuple[bytes, str, str | None]] = [
        (b'{"id": "broken-001", "text": "' + sentence[:40], "invalid_json", None),
        (b"This line was never JSON, and has lost its way into the file.", "invalid_json", None),
        (b"{'id': 'broken-003', 'text': 'single quotes are no JSON'}", "invalid_json", None),
        (b'{"id": "broken-004", "text": "' + sentence + b'"} and then some', "invalid_json", None),
        (b'{"id": "broken-005", "text": "The caf\xe9 of the na\xefve fianc\xe9."}', "invalid_utf8", None),
        (b'{"id": "broken-006", "text": "cut in mid-character \xe2\x80"}', "invalid_utf8", None),
        (b'{"id": "broken-007", "text": "half of a pair \\ud83d stands alone"}', "invalid_json", None),
        (b'["broken-008", "a list is not an object"]', "not_an_object", None),
        (b'"broken-009 is a bare string"', "not_an_object", None),
        (b'{"id": "broken-010", "title": "no text at all"}', "no_text", "broken-010"),
        (b'{"id": "broken-011", "text": null}', "no_text", "broken-011"),
        (b'{"id": "broken-012", "text": 12345}', "no_text", "broken-012"),
        (b'{"id": "broken-013", "text": ""}', "empty_text", "broken-013"),
        (b'{"id": "broken-014", "text": " \\n\\t "}', "empty_text", "broken-014"),
    ]
    every = len(bad) // len(good)
    mixed: list[tuple[bytes, str, str | None]] = []
    for n, line in enumerate(good):
        mixed += [line, *bad[n * every : (n + 1) * every if n + 1 < len(good) else len(bad)]]
    return mixed


def labels(records: list[Record], lines: list[tuple[str, str | None]], seed: int) -> Record:
    """`kinds` to count with, `documents` to look one up, and what is odd in the wiki and the docs."""
    kinds: dict[str, Record] = {}
    spans: dict[str, Counter[str]] = defaultdict(Counter)
    histogram: Counter[str] = Counter()
    documents: dict[str, Record] = {}
    for r in sorted(records, key=lambda r: r["id"]):
        label = without_values(r["planted"], secrets_only=True) if "spans" in r["planted"] else r["planted"]
        documents[r["id"]] = label
        kind = kinds.setdefault(label["kind"], {"expected": label["expected"], "count": 0, "ids": []})
        kind["count"] += 1
        kind["ids"].append(r["id"])
        for span in label.get("spans", ()):
            spans["spans"][span["kind"]] += 1
        for span in label.get("lookalikes", ()):
            spans["lookalikes"][span["resembles"]] += 1
        if "jaccard5" in label:
            histogram[f"{int(label['jaccard5'] * 20 + 1e-9) / 20:.2f}"] += 1
    bad = [
        {"line": n, "reason": reason, "id": id_, "expected": "keep" if reason == "good" else "quarantine"}
        for n, (reason, id_) in enumerate(lines, 1)
    ]
    return {
        "seed": seed,
        "file": "sources/planted/planted.jsonl.gz",
        "total": len(records),
        "kinds": kinds,
        "near_copies_by_jaccard5": dict(sorted(histogram.items())),
        "spans": dict(sorted(spans["spans"].items())),
        "lookalikes": dict(sorted(spans["lookalikes"].items())),
        "broken": {
            "file": "sources/planted/broken.jsonl",
            "quarantine": sum(b["expected"] == "quarantine" for b in bad),
            "keep": sum(b["expected"] == "keep" for b in bad),
            "lines": bad,
        },
        "wiki": {"file": "sources/wiki/enwiki.xml.bz2", "cut_short": True},
        "docs": {"file": "sources/docs/docs.warc.gz", **web.labels()},
        "documents": documents,
    }
