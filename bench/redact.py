"""Redaction: MB/s per core on real text, precision and recall on labelled text."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
LABELS = {
    "EMAIL_ADDRESS": "email", "PHONE_NUMBER": "phone", "IP_ADDRESS": "ip", "CREDIT_CARD": "card", "IBAN_CODE": "iban",
    "US_SSN": "ssn",
}  # fmt: skip
LABELLED = ("presidio_synth_v2/synth_dataset_v2.json", "presidio_generated_large/generated_large.json")


def texts(folder: Path) -> Iterator[str]:
    """Every text of a set: Markdown files, or the text field of JSON lines."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in (".md", ".pod"):
            yield file.read_text(encoding="utf-8", errors="replace")
        elif file.name.endswith(".jsonl.gz"):
            with gzip.open(file, "rt", encoding="utf-8") as lines:
                for line in lines:
                    row = json.loads(line)
                    yield next((row[k] for k in ("text", "html", "Body", "abstract") if row.get(k)), line)


def table(values: list[str]) -> pa.Table:
    """A document table of texts."""
    from schemas.documents import DOCUMENTS
    from schemas.ids import doc_id, text_hash

    rows = len(values)
    columns: dict[str, Any] = {field.name: pa.nulls(rows, field.type) for field in DOCUMENTS}
    columns |= {
        "doc_id": [doc_id("bench", str(i)) for i in range(rows)], "source": ["bench"] * rows,
        "locator": [str(i) for i in range(rows)], "text": values, "text_hash": [text_hash(v) for v in values],
    }  # fmt: skip
    return pa.table(columns, schema=DOCUMENTS)


def speed(values: list[str]) -> dict[str, float]:
    """MB, MB/s per core, finds."""
    from pipeline.redact.stage import redact
    from schemas.redact import RedactParams

    docs = table(values)
    size = sum(len(value.encode()) for value in values)
    seconds = []
    for _ in range(2):
        start = time.process_time()
        outcome = redact(docs, RedactParams())
        seconds.append(time.process_time() - start)
    finds = sum(
        count for name, count in outcome.counters.items() if "/" not in name and name != "documents_edited"
    )
    return {"mb": size / 1e6, "mb_s": size / 1e6 / min(seconds), "finds": finds}


def score(name: str) -> dict[str, dict[str, float]]:
    """Kind -> precision and recall of finds (a find counts where it overlaps a label of its kind) of a labelled
    set of ../shared/data/pii, with the counts."""
    from pipeline.redact.batch import find
    from schemas.redact import RedactParams

    params = RedactParams()
    counts: dict[str, dict[str, int]] = {
        kind: {"right": 0, "wrong": 0, "missed": 0} for kind in LABELS.values()
    }
    for row in json.loads((DATA / "pii" / name).read_text(encoding="utf-8")):
        data = row["full_text"].encode() + b"\x00"
        hits = find(data, params.kinds, params.phone_regions, own=False)
        got = [(h.kind, len(data[: h.start].decode()), len(data[: h.end].decode())) for h in hits]
        want = [
            (LABELS[span["entity_type"]], span["start_position"], span["end_position"])
            for span in row["spans"]
            if span["entity_type"] in LABELS
        ]
        for kind, low, high in got:
            if kind in counts and not any(k == kind and low < b and a < high for k, a, b in want):
                counts[kind]["wrong"] += 1
        for label, low, high in want:
            hit = any(k == label and low < b and a < high for k, a, b in got)
            counts[label]["right" if hit else "missed"] += 1
    return {
        kind: {
            "precision": c["right"] / max(c["right"] + c["wrong"], 1),
            "recall": c["right"] / max(c["right"] + c["missed"], 1),
            **c,
        }
        for kind, c in counts.items()
    }


def measure() -> dict[str, Any]:
    """Speed per set and accuracy per kind; empty without ../shared/data."""
    if not DATA.is_dir():
        return {"speed": {}, "accuracy": {}}
    sets = {
        folder.name: list(texts(folder)) for folder in sorted((DATA / "natural").iterdir()) if folder.is_dir()
    }
    for name in LABELLED:
        rows = json.loads((DATA / "pii" / name).read_text(encoding="utf-8"))
        sets[f"pii/{name.partition('/')[0]}"] = [row["full_text"] for row in rows]
    speed(["warm up: +1 212 736 3100"])
    rates = {name: speed(values) for name, values in sets.items() if values}
    natural = [rate for name, rate in rates.items() if not name.startswith("pii/")]
    total = sum(rate["mb"] for rate in natural)
    rates["all natural sets"] = {
        "mb": total, "mb_s": total / sum(rate["mb"] / rate["mb_s"] for rate in natural),
        "finds": sum(rate["finds"] for rate in natural),
    }  # fmt: skip
    return {"speed": rates, "accuracy": {name.partition("/")[0]: score(name) for name in LABELLED}}


def main() -> None:
    """Print Markdown tables."""
    result = measure()
    if not result["speed"]:
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    print("All default kinds, tags, text in memory; the sets of HTML are scanned with their markup.\n")
    print("| text | MB | MB/s per core | finds |\n|---|---|---|---|")
    for name, row in result["speed"].items():
        print(f"| {name} | {row['mb']:.1f} | {row['mb_s']:.1f} | {row['finds']:.0f} |")
    print(
        "\nA find is right where it overlaps a label of its kind. Both sets, made by one generator, were looked at\n"
        "while the detectors were written: how well these generalise, they do not say.\n"
    )
    print(
        "| labelled set | kind | precision | recall | right | wrong | missed |\n|---|---|---|---|---|---|---|"
    )
    for name, kinds in result["accuracy"].items():
        for kind, row in kinds.items():
            numbers = f"{row['precision']:.3f} | {row['recall']:.3f} | {row['right']} | {row['wrong']} | {row['missed']}"
            print(f"| {name} | {kind} | {numbers} |")


if __name__ == "__main__":
    main()
