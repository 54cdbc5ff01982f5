"""The transform: edits that reproduce the text, idempotence, pseudonyms, and the datum in no table."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.common.ids import text_hash
from corpusmill.pipeline.engine.stage import Outcome, check_conservation
from corpusmill.pipeline.redact.apply import redact
from corpusmill.pipeline.redact.batch import Edit, compose
from corpusmill.pipeline.redact.pseudonyms import tag
from corpusmill.schemas.stages import RedactParams
from corpusmill.schemas.tables import DOCUMENTS
from tests.pipeline.corpus import documents
from tests.pipeline.inspect.lineage.edited import check_edits

KEY = b"a key for these tests only"
TAGS, NAMES = RedactParams(), RedactParams(replacement="pseudonym")
URL, QUERY = "https://ann:hunter2@site.org/", "https://site.org/?token=ab12cd34ef"
NAMED = ("SIN ", "IdNr ", "DNI ", "NHS ", "aadhaar ", "BSN ", "PESEL ", "fax ")
PII = [
    "ann@site.org", "josé@correo.es", "+44 20 7946 0958", "(212) 736-3100", "650-253-0000", "8.8.8.8", "93.184.216.34",
    "2606:4700:4700::1111", "4111 1111 1111 1111", "378282246310005", "GB82 WEST 1234 5698 7654 32", "123-45-6789",
    "DE89370400440532013000", "123456789", "api_key = sk9fA83jdPq0xZ71LmNb", "AKIA" + "IOSFODNN7QXAMPLE",
    "00:1a:2b:3c:4d:5e", "001a.2b3c.4d5e", URL, QUERY,
    "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq",
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "390.533.447-05", "SIN 123-456-782", "IdNr 36574261809", "DNI 54362315K",
    "2 95 10 99 126 111 93", "NHS 943 476 5870", "AB 12 34 56 C", "aadhaar 2341 2341 2346", "RCCMNL83S18D969H",
    "BSN 111222333", "PESEL 44051401359", "19811218-9876", "+49 30 901820", "fax 01.84.17.61.18", "+33 1 42 68 53 00",
]  # fmt: skip
GLUE = [
    "", " ", "\n", ".", ",", "-", "/", ":", "=", "x", "é", "日", "1", "8.", "ssn ", "phone: ", "card ", "@", "(", "<EMAIL>",
    "ip", "nhs ", "bsn ", "pesel ", "?key=", "&sig=", "://", "password: ", " fax", "\u00a0", "\u2011", "a:b@",
]  # fmt: skip


def test_the_ledger_reproduces_every_edit_and_no_document_is_lost() -> None:
    texts = ["plain", "日本 ann@site.org é 8.8.8.8\n", "👩🏽‍🚀 call (212) 736-3100 now, or 650-253-0000", ""]
    docs = documents(texts)
    outcome = redact(docs, TAGS)
    assert check_conservation("test", len(docs), outcome) == (0, 0)
    assert outcome.kept["text"].to_pylist() == [
        "plain", "日本 <EMAIL> é <IP>\n", "👩🏽‍🚀 call <PHONE> now, or <PHONE>", "",
    ]  # fmt: skip
    assert rebuilt(docs, outcome) == outcome.kept["text"].to_pylist()
    assert outcome.kept.schema == DOCUMENTS
    assert outcome.kept["text_hash"].to_pylist() == [text_hash(t) for t in outcome.kept["text"].to_pylist()]
    assert outcome.kept.drop(["text", "text_hash"]) == docs.drop(["text", "text_hash"])
    rows = outcome.decisions.to_pylist()
    assert [r["doc_id"] for r in rows] == docs["doc_id"].to_pylist()[1:3]
    assert {(r["outcome"], r["stage"], r["rule"]) for r in rows} == {("kept", "redact", None)}
    assert rows[0]["edits"] == [
        {"stage": "redact", "kind": "email", "offset": 3, "length": 12, "written": 7},
        {"stage": "redact", "kind": "ip", "offset": 18, "length": 7, "written": 4},
    ]
    assert dict(outcome.counters) == {
        "documents_edited": 2, "email": 1, "ip": 1, "phone": 2,
        "source/web/email": 1, "source/web/ip": 1, "source/web/phone": 2,
    }  # fmt: skip


def rebuilt(docs: pa.Table, outcome: Outcome) -> list[str]:
    """The texts that the ledger's edits make of the incoming ones."""
    texts = dict(zip(docs["doc_id"].to_pylist(), docs["text"].to_pylist(), strict=True))
    for row in outcome.decisions.to_pylist():
        text = texts[row["doc_id"]]
        for edit in reversed(row["edits"]):
            place = edit["offset"]
            assert edit["written"] == len(tag(edit["kind"]))
            text = text[:place] + tag(edit["kind"]).decode() + text[place + edit["length"] :]
        texts[row["doc_id"]] = text
    return list(texts.values())


def test_the_datum_is_in_no_table() -> None:
    outcome = redact(documents([" ; ".join(PII)]), TAGS)
    reported = json.dumps(outcome.decisions.to_pylist(), default=str) + json.dumps(dict(outcome.counters))
    whole = [value for value in PII if value not in (QUERY, URL, "123456789") and " = " not in value]
    bare = [value.removeprefix(name) for value in whole for name in NAMED if value.startswith(name)]
    text = outcome.kept["text"][0].as_py()
    assert not [
        value for value in [*whole, *bare, "hunter2", "ab12cd34ef"] if value in reported or value in text
    ]
    assert len(outcome.decisions["edits"][0]) >= len(PII) - 4


pieces = st.lists(
    st.one_of(st.sampled_from(PII), st.sampled_from(GLUE), st.text(max_size=8)), max_size=12
).map("".join)


@settings(max_examples=250, deadline=None)
@given(st.lists(pieces, max_size=4), st.booleans())
@example(["ssn: a.long.address.of.somebody@some.very.long.site.org 123456789"], False)
@example(["x@y.com8.8.8.8", "phone ann@site.org 2127363100"], True)
@example(["api_key = ann1234567890bc@site.org", "http://8.8.8.8@site.org"], True)
def test_any_text_stays_valid_and_a_second_pass_changes_nothing(texts: list[str], named: bool) -> None:
    params, docs = (
        (NAMES if named else TAGS),
        documents([t.encode("utf-8", "ignore").decode() for t in texts]),
    )
    once = redact(docs, params, KEY)
    assert check_conservation("test", len(docs), once) == (0, 0)
    once.kept.validate(full=True)  # valid UTF-8, and offsets in order
    if not named:
        assert rebuilt(docs, once) == once.kept["text"].to_pylist()
    edited = {row["doc_id"]: row["edits"] for row in once.decisions.to_pylist()}
    for before, after in zip(docs.to_pylist(), once.kept.to_pylist(), strict=True):
        check_edits(before["text"], after["text"], edited.get(before["doc_id"], []), writes=True)
    again = redact(once.kept, params, KEY)
    assert again.kept == once.kept and len(again.decisions) == 0


LISTS = {
    "phone": [f"21255{i:05d}" for i in range(11000, 11100)], "host": [f"{11 + i % 50}.{20 + i % 40}.30.12" for i in range(100)],
    "PESEL": ["44051401359"] * 60, "aadhaar": ["234123412346"] * 60, "card": ["30569309025904"] * 60,
    "mac": ["11:22:33:44:55:66"] * 60, "ssn": ["123456789"] * 60, "wallet": ["0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"] * 60,
}  # fmt: skip


@pytest.mark.parametrize("word", LISTS)
@pytest.mark.parametrize("params", [TAGS, NAMES], ids=["tag", "pseudonym"])
def test_a_long_list_behind_one_word_is_settled(word: str, params: RedactParams) -> None:
    """A replacement that is shorter brings the next entry near the word, but is itself no such word."""
    once = redact(documents([f"{word} " + ", ".join(LISTS[word])]), params, KEY)
    assert sum(once.counters[kind] for kind in params.kinds if kind in once.counters) >= 1
    again = redact(once.kept, params, KEY)
    assert again.kept == once.kept and len(again.decisions) == 0


VALUES = [b" ann@site.org ", b" 8.8.8.8 ", b" +1 212 736 3100 ", b" 4111 1111 1111 1111 "]


@given(st.lists(st.binary(max_size=40) | st.sampled_from(VALUES), max_size=8).map(b"".join))
@settings(max_examples=100, deadline=None)
@example(b"".join(VALUES))
def test_detectors_take_any_bytes(data: bytes) -> None:
    from corpusmill.pipeline.redact.batch import Look, find

    last = 0
    if data == b"".join(VALUES):
        assert len(find(data, Look(TAGS.kinds, ("US",), own=True))) == len(VALUES)
    for hit in find(data, Look(TAGS.kinds, ("US",), own=True)):
        assert last <= hit.start < hit.end <= len(data)
        last = hit.end


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_edits_of_edits_are_edits_of_the_text(data: st.DataObject) -> None:
    text = data.draw(st.binary(min_size=1, max_size=30))
    first = data.draw(some_edits(len(text)))
    after = apply(text, first)
    second = data.draw(some_edits(len(after)))
    both = compose(first, second)
    assert all(a.end <= b.start for a, b in itertools.pairwise(both))
    assert apply(text, both) == apply(after, second)


@st.composite
def some_edits(draw: Any, size: int) -> list[Edit]:
    points = sorted(set(draw(st.lists(st.integers(0, size), max_size=6))))
    pairs = list(zip(points[::2], points[1::2], strict=False))
    return [Edit(a, b, "email", draw(st.binary(min_size=1, max_size=5))) for a, b in pairs]


def apply(text: bytes, edits: list[Edit]) -> bytes:
    for edit in reversed(edits):
        text = text[: edit.start] + edit.replacement + text[edit.end :]
    return text


def test_partitions_batches_and_slices_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = documents([f"{'pad ' * i} mail a{i}@site.org and 8.8.8.8" for i in range(40)])
    whole = redact(docs, TAGS)
    monkeypatch.setattr("corpusmill.pipeline.redact.apply.BATCH_BYTES", 100)
    small = redact(docs, TAGS)
    assert (small.kept, small.decisions, small.counters) == (whole.kept, whole.decisions, whole.counters)
    halves = [redact(part, TAGS).kept for part in (docs.slice(0, 13), docs.slice(13))]
    assert pa.concat_tables(halves) == whole.kept


def test_empty_and_chunked_tables() -> None:
    docs = documents(["8.8.8.8", "b", "c 8.8.4.4"])
    empty = redact(docs.slice(0, 0), TAGS)
    assert len(empty.kept) == len(empty.decisions) == 0
    chunked = pa.concat_tables([docs.slice(2), docs.slice(0, 1)])
    assert redact(chunked, TAGS).kept["text"].to_pylist() == ["c <IP>", "<IP>"]


def test_documents_are_removed_for_the_kinds_that_say_so() -> None:
    docs = documents(
        [
            "plain",
            "4111 1111 1111 1111, DE89370400440532013000 ann@site.org",
            "ann@site.org",
            "8.8.8.8 8.8.4.4",
        ]
    )
    params = RedactParams(
        replacements={"card": "remove", "iban": "remove", "ip": "remove", "email": "pseudonym"}
    )
    outcome = redact(docs, params, KEY)
    assert check_conservation("test", len(docs), outcome) == (2, 0)
    kept = outcome.kept["text"].to_pylist()
    assert kept[0] == "plain" and kept[1].startswith("user-") and len(kept) == 2
    assert outcome.kept.schema == DOCUMENTS
    rows = [
        (
            r["outcome"],
            r["rule"],
            r["value"],
            r["threshold"],
            [f["rule"] for f in r["failed"] or ()],
            r["edits"],
        )
        for r in outcome.decisions.to_pylist()
    ]
    assert rows[0] == ("removed", "redact.card", 1.0, 0.0, ["redact.card", "redact.iban"], None)
    assert rows[1][:4] == ("kept", None, None, None)
    assert rows[2] == ("removed", "redact.ip", 2.0, 0.0, ["redact.ip"], None)
    assert dict(outcome.counters) == {
        "documents_edited": 1, "email": 1, "removed/card": 1, "removed/iban": 1, "removed/ip": 1, "source/web/email": 1,
    }  # fmt: skip
    assert redact(outcome.kept, params, KEY).kept == outcome.kept


def test_a_whole_batch_may_go() -> None:
    docs = documents(["8.8.8.8", "8.8.4.4"])
    outcome = redact(docs, RedactParams(kinds=["ip"], replacement="remove"))
    assert len(outcome.kept) == 0 and outcome.kept.schema == DOCUMENTS and len(outcome.decisions) == 2


def test_private_addresses_only_when_asked() -> None:
    docs = documents(
        [
            "192.168.1.1 fe80::1ff:fe23:4567:890a 127.0.0.1 255.255.255.0 d80:e4b5:79da:6cf6:71f3:51f7:9161:c319"
        ]
    )
    assert redact(docs, TAGS).kept["text"][0].as_py() == docs["text"][0].as_py()
    outcome = redact(docs, RedactParams(ip="all"))
    assert outcome.kept["text"][0].as_py() == "<IP> <IP> 127.0.0.1 255.255.255.0 <IP>"


@settings(max_examples=100, deadline=None)
@given(st.lists(pieces, max_size=5), st.integers(0, 5))
def test_the_cut_into_partitions_changes_nothing(texts: list[str], cut: int) -> None:
    docs = documents([t.encode("utf-8", "ignore").decode() for t in texts])
    whole = redact(docs, NAMES, KEY)
    parts = [redact(part, NAMES, KEY) for part in (docs.slice(0, cut), docs.slice(cut))]
    assert pa.concat_tables([part.kept for part in parts]) == whole.kept
    assert pa.concat_tables([part.decisions for part in parts]) == whole.decisions
