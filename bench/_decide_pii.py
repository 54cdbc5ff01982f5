"""Telephone numbers, and numbers of patients, social security, licences, orders and cases by what stands before them: F1 per set, beside
Presidio's recognisers with their context words. No region is named: the stage's defaults, behind `filter`, which writes the language
that its default model finds.

A labelled file of the user's is JSON lines: {"text": "...", "spans": [{"kind": "phone", "start": 3, "end": 15}]}, offsets in
characters. `kind` is one of `redact.kinds`; for the task `identifiers` also `identifier`, for what is labelled no closer. Spans of other kinds than the
task's are passed over. A find is right where it overlaps a label.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, get_args

import pyarrow as pa
import pyarrow.compute as pc

from bench._decisions import Row
from bench._pii_templates import FORMS, JUDGED, LAST, LATER, LOCALES, PROVIDERS
from bench.peers import NotMeasured, Peer, ask, write_documents
from bench.redact import LABELLED, NANO, PRESIDIO, labelled

FAKER = Peer("faker", ("faker==40.63.0",), "fill_templates.py")
COPIES, SEED = 12, 22
ENTITIES = (  # Presidio's for identifiers
    "US_SSN", "US_DRIVER_LICENSE", "US_PASSPORT", "US_BANK_NUMBER", "US_ITIN", "MEDICAL_LICENSE", "UK_NHS",
)  # fmt: skip
NANO_IDENTIFIERS = [
    "PATIENT_ID",
    "MEDICAL_RECORD",
    "PID",
    "SSN",
    "PASSPORT",
    "PASSPORT_NUM",
    "TAX_ID",
    "TAXID",
    "ACCOUNT",
    "ACCOUNT_NUMBER",
    "ACCOUNT_NUM",
    "BANK_ACCOUNT",
    "BANK_ACCOUNT_NUM",
    "ROUTING_NUMBER",
    "DRIVER_LICENSE",
    "DRIVERS_LICENSE",
    "DRIVER_LICENSE_NUM",
    "LICENSE",
    "INSURANCE_ID",
    "INSURANCE_POLICY_NUM",
    "EMPLOYEE_ID",
    "USER_ID",
    "VOTER_ID",
    "AADHAR",
    "PAN",
    "POLICE_ID_NUM",
]


class Item(NamedTuple):
    """A text, its labels in characters, and its language where the set gives it."""

    text: str
    spans: list[tuple[int, int]]
    language: str | None = None


class Task(NamedTuple):
    """What is judged: the figure's name, our kinds, the labels that count, Presidio's entities, the goals by language."""

    decision: str
    kinds: Sequence[str]
    labels: Collection[str]
    entities: Sequence[str]
    wanted: dict[str, float]


def identifier_kinds() -> list[str]:
    """Our kinds of identifiers: by label, and national numbers."""
    from corpusmill.pipeline.redact.identifier_labels import KINDS
    from corpusmill.pipeline.redact.identity_numbers import NUMBERS

    return [*KINDS, *NUMBERS, "ssn"]


SETS = {
    "templates by Faker": (JUDGED, "by the same hand as the detectors"),
    "later templates": (LATER, "looked at"),
    "last templates": (LAST, "not looked at"),
}


@lru_cache(maxsize=len(SETS))
def templates(name: str) -> list[tuple[str, str, tuple[tuple[str, int, int], ...]]]:
    """(language, text, labels) of one of `SETS`, filled by Faker. Raises `NotMeasured`."""
    given = {
        "seed": SEED, "copies": COPIES, "locales": LOCALES, "forms": FORMS, "templates": SETS[name][0],
        "providers": {f"{language} {kind}": name for (language, kind), name in PROVIDERS.items()},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "templates.json")
        file.write_text(json.dumps(given), encoding="utf-8")
        made = ask(FAKER, file)
    return [
        (row["language"], row["text"], tuple((s["kind"], s["start"], s["end"]) for s in row["spans"]))
        for row in made
    ]


def own_file(file: Path, task: Task) -> list[Item]:
    """The user's labelled file. Exits with one line for what is none."""
    from corpusmill.schemas.stages import PiiKind

    known = {*get_args(PiiKind), "identifier"}
    items = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            spans = [(span["kind"], int(span["start"]), int(span["end"])) for span in row["spans"]]
            text = row["text"]
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(
                f'{file}:{number}: {type(error).__name__} {error}; a line is {{"text": …, "spans": [{{"kind", "start", "end"}}]}}'
            )
        for kind, start, end in spans:
            if kind not in known or not 0 <= start < end <= len(text):
                sys.exit(
                    f"{file}:{number}: span {kind} {start}-{end}; kinds are those of redact.kinds or 'identifier', offsets lie in the text"
                )
        items.append(Item(text, [(a, b) for kind, a, b in spans if kind in task.labels], row.get("language")))
    return items


def sets(task: Task) -> dict[str, list[Item]]:
    """Name -> items of the sets beside this checkout and those made by generators."""
    result: dict[str, list[Item]] = {}
    try:
        for name in SETS:
            for language, text, spans in templates(name):
                group = language if language in ("en", "es") else "nine other languages"
                own = Item(text, [(a, b) for kind, a, b in spans if kind in task.labels])
                result.setdefault(f"{name}, {group}", []).append(own)
    except NotMeasured as reason:
        print(f"templates: not measured: {reason}", file=sys.stderr)
    if "phone" in task.labels:
        for name in (*LABELLED, NANO):
            rows = labelled(name)
            result[name.partition("/")[0]] = [
                Item(r.text, [(a, b) for k, a, b in r.spans if k in task.labels]) for r in rows
            ]
        result["phonenumbers' examples"] = list(examples())
    else:
        result[NANO.partition("/")[0]] = list(_nano())
    return result


def examples() -> Iterable[Item]:
    """The example numbers of all regions of `phonenumbers`, in national form behind a word of their language (of others
    "Tel."), and in international form without one."""
    import phonenumbers

    from corpusmill.pipeline.redact.phone_words import LANGUAGES

    words = {
        region: words.labels[0].removeprefix("*")
        for words in LANGUAGES.values()
        for region in words.regions[:1]
    }
    for region in sorted(phonenumbers.SUPPORTED_REGIONS):
        for kind in (phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE):
            number = phonenumbers.example_number_for_type(region, kind)
            if number is None:
                continue
            for form, lead in (
                (phonenumbers.PhoneNumberFormat.NATIONAL, f"{words.get(region, 'tel').capitalize()}: "),
                (phonenumbers.PhoneNumberFormat.INTERNATIONAL, "12.05.2021, 350 000, "),
            ):
                written = phonenumbers.format_number(number, form)
                if sum(c.isdigit() for c in written) >= 7:  # fewer are none that anything is recognised in
                    yield Item(f"{lead}{written}. 1998-2003", [(len(lead), len(lead) + len(written))])


def _nano() -> Iterable[Item]:
    from bench.natural import DATA

    for row in json.loads((DATA / "pii" / NANO).read_text(encoding="utf-8")):
        if row.get("text"):
            found = [
                e
                for e in row.get("NER") or []
                if isinstance(e, dict) and e.get("label") in NANO_IDENTIFIERS and e.get("entity")
            ]
            places = [(row["text"].find(e["entity"]), len(e["entity"])) for e in found]
            yield Item(row["text"], [(at, at + size) for at, size in places if at >= 0])


def ours(items: Sequence[Item], kinds: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Our finds of these kinds per item at the stage's defaults, in characters."""
    from corpusmill.pipeline.redact.batch import Look, find_edits
    from corpusmill.schemas.stages import RedactParams

    params = RedactParams()
    look = Look(params.kinds, tuple(params.phone_regions))
    texts = pa.array([item.text for item in items], pa.large_string())
    languages = pc.coalesce(pa.array([item.language for item in items], pa.string()), spoken(texts))
    edits, _ = find_edits(texts, look, lambda kind, value: b"<X>", languages)
    return [
        [
            (len(item.text.encode()[: e.start].decode()), len(item.text.encode()[: e.end].decode()))
            for e in edits.get(row, ())
            if e.kind in kinds
        ]
        for row, item in enumerate(items)
    ]


def spoken(texts: pa.LargeStringArray) -> pa.StringArray:
    """The languages that `filter` writes beside documents by its default model: `redact` reads them there."""
    from corpusmill.pipeline.filter.classifiers import fasttext_model, predictor
    from corpusmill.pipeline.filter.classifiers.scores import languages

    file = fasttext_model.shipped("lid.176.ftz")
    return languages(texts, predictor.load(file.path, file.xxh3))[0]


def presidio(items: Sequence[Item], entities: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Presidio's finds of these entities. Raises `NotMeasured`."""
    with tempfile.TemporaryDirectory() as place:
        texts = pa.array([item.text for item in items])
        path = write_documents(Path(place, "items.jsonl"), map(str, range(len(items))), texts)
        return [[(a, b) for _, a, b, _ in found] for found in ask(PRESIDIO, path, *entities)["finds"]]


def score(finds: Sequence[Sequence[tuple[int, int]]], items: Sequence[Item]) -> tuple[float, float, float]:
    """(precision, recall, F1); a find is right where it overlaps a label."""
    right = wrong = missed = 0
    for got, item in zip(finds, items, strict=True):
        wrong += sum(not any(low < b and a < high for a, b in item.spans) for low, high in got)
        hit = sum(any(low < b and a < high for low, high in got) for a, b in item.spans)
        right, missed = right + hit, missed + len(item.spans) - hit
    precision, recall = right / max(right + wrong, 1), right / max(right + missed, 1)
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def telephone(labelled: Path | None) -> list[Row]:
    """One row per labelled set: telephone numbers."""
    wanted = {"en": 0.96, "es": 0.88}
    return rows(Task("telephone F1", ("phone",), frozenset({"phone"}), ("PHONE_NUMBER",), wanted), labelled)


def identifiers(labelled: Path | None) -> list[Row]:
    """One row per labelled set: identifiers of any kind, beside Presidio's pattern recognisers of such numbers."""
    kinds = identifier_kinds()
    labels = frozenset({*kinds, "identifier"})
    return rows(Task("identifiers F1", kinds, labels, ENTITIES, {"en": 0.60, "es": 0.75}), labelled)


def rows(task: Task, file: Path | None) -> list[Row]:
    """A row per set, with Presidio on the same items."""
    found = []
    for name, items in ({file.name: own_file(file, task)} if file else sets(task)).items():
        labels = sum(len(item.spans) for item in items)
        precision, recall, f1 = score(ours(items, task.kinds), items)
        peers: dict[str, float] = {}
        note = f"precision {precision:.3f}, recall {recall:.3f}"
        try:
            theirs = score(presidio(items, task.entities), items)
            peers = {PRESIDIO.label: theirs[2]}
            note += f"; its {theirs[0]:.3f}, {theirs[1]:.3f}"
        except NotMeasured as reason:
            note += f"; no peer: {reason}"
        if name.partition("/")[0] in (
            "presidio_synth_v2",
            "presidio_generated_large",
            NANO.partition("/")[0],
        ):
            note += "; looked at while it was written"
        elif template := SETS.get(name.partition(",")[0]):
            note += f"; templates {template[1]} (`_pii_templates`)"
        judged_on = f"{name} ({len(items)} texts, {labels} labels)"
        found.append(Row(task.decision, judged_on, f1, peers, task.wanted.get(name.rpartition(" ")[2]), note))
    return found
