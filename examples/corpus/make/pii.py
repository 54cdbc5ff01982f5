"""Documents of ordinary prose that carry personal data and secrets, and look-alikes that must stay."""

from __future__ import annotations

import random
from hashlib import sha256

from .common import Record, sentences
from .pii_values import FORMATS, LOOKALIKE_COUNT, LOOKALIKES

Item = tuple[str, str, str, str]  # kind, format, value, carrier
Decoy = tuple[str, str, str]  # what it resembles, value, carrier


def pii(paragraphs: list[Record], rng: random.Random) -> tuple[list[Record], int]:
    """60 documents with something to redact and 16 with look-alikes alone; and how many those are."""
    items: list[Item] = []
    seen: set[str] = set()
    for (kind, form), (count, make, carriers) in FORMATS.items():
        for number in range(count):
            value = make(rng)
            # Small pools run out; while they last, distinct values test more.
            for _ in range(20):
                if value not in seen:
                    break
                value = make(rng)
            seen.add(value)
            items.append((kind, form, value, carriers[number % len(carriers)]))
    rng.shuffle(items)
    decoys = [LOOKALIKES[i % len(LOOKALIKES)] for i in range(LOOKALIKE_COUNT)]
    shares: list[tuple[list[Item], list[Decoy]]] = [([], []) for _ in range(76)]
    for number, item in enumerate(items):
        shares[number % 60][0].append(item)
    for number, decoy in enumerate(decoys):
        shares[75 - number % 76][1].append(decoy)
    made = []
    for number, (found, stays) in enumerate(shares):
        kind = "lookalike" if not found else "secret" if any(i[0] == "secret" for i in found) else "pii"
        made.append(_document(kind, number + 1, paragraphs[number]["text"], found, stays, rng))
    return made, len(shares)


def _document(
    kind: str,
    number: int,
    base: str,
    found: list[Item],
    stays: list[Decoy],
    rng: random.Random,
) -> Record:
    parts = sentences(base)
    for value, carrier in [(v, c) for _, _, v, c in found] + [(v, c) for _, v, c in stays]:
        parts.insert(rng.randrange(1, len(parts) + 1), carrier.format(value))
    text = " ".join(parts)

    def span(value: str, **label: str) -> Record:
        if text.count(value) != 1:
            raise ValueError(f"{value!r} occurs {text.count(value)} times in document {number}")
        start = text.index(value)
        return {**label, "start": start, "end": start + len(value), "value": value}

    label: Record = {"kind": kind, "expected": "keep" if kind == "lookalike" else "redact"}
    label["spans"] = sorted((span(v, kind=k, format=f) for k, f, v, _ in found), key=lambda s: s["start"])
    label["lookalikes"] = sorted((span(v, resembles=k) for k, v, _ in stays), key=lambda s: s["start"])
    return {"id": f"{kind}-{number:03d}", "text": text, "planted": label}


def without_values(planted: Record, *, secrets_only: bool = False) -> Record:
    """The label with a hash in place of each value. That is how it travels with its document: a pipeline that
    carries metadata along must not carry the value along with it. labels.json hides only the secrets, which
    hosts of source code refuse to take in plain text, synthetic or not."""

    def hashed(span: Record) -> Record:
        kind = span.get("kind", span.get("resembles"))
        rest = span if secrets_only and kind != "secret" else {k: v for k, v in span.items() if k != "value"}
        return {**rest, "value_hash": sha256(span["value"].encode()).hexdigest()}

    spans: Record = {k: [hashed(s) for s in planted[k]] for k in ("spans", "lookalikes") if k in planted}
    return {**planted, **spans}
