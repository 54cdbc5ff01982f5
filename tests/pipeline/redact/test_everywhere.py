"""What is recognised in one document is taken out of all: partitions, kills, keys and the rules of what counts as the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.redact import prepare
from corpusmill.pipeline.redact.apply import redact
from corpusmill.pipeline.redact.known import Known, entries, hashes
from corpusmill.pipeline.redact.prepare import load, read_set
from corpusmill.pipeline.redact.stage import Redact
from corpusmill.schemas.stages import RedactParams
from tests.pipeline.corpus import Here, contents, documents, partitions, recipe
from tests.pipeline.redact.test_apply import PII, pieces

KEY = bytes(range(16))
REGIONS = ("US", "GB")


def known(*values: tuple[Any, bytes]) -> Known:
    return Known.of(entries(values, KEY, REGIONS), KEY, REGIONS)


def found(text: str, *values: tuple[Any, bytes]) -> list[str]:
    data = text.encode() + b"\0"
    return [data[hit.start : hit.end].decode() for hit in known(*values).find(data)]


def test_the_hash_is_siphash_2_4() -> None:
    """The last vector of the reference implementation, and the example of the paper."""
    assert int(hashes([bytes(range(15))], KEY)[0]) == 0xA129CA6149BE45E5
    assert int(hashes([b""], KEY)[0]) == 0x726FDB47DD0E0E31


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2127363100", True), ("12127363100", True), ("+12127363100", True), ("0012127363100", True),
        ("212/736/3100", True), ("(212) 736 3100", True), ("/u/2127363100/x", True), ("tel=2127363100&", True),
        ("id_2127363100.", True), ("a 2127363100 5", True), ("电话2127363100。", True),
        ("92127363100", False), ("21273631005", False), ("2127363100-5", False), ("5.2127363100", False),
        ("x2127363100", False), ("2127363100x", False), ("2127363100.5", False), ("7363100", False), ("736-3100", False),
    ],
)  # fmt: skip
def test_a_telephone_number_is_found_in_any_form_but_not_within_a_longer_one(text: str, wanted: bool) -> None:
    assert bool(found(text, ("phone", b"(212) 736-3100"))) == wanted


def test_few_digits_count_only_in_the_groups_in_which_they_were_recognised() -> None:
    value = ("phone", b"555-1234")
    assert found("a 555-1234 b 555 1234", value) == ["555-1234", "555 1234"]
    assert found("5551234, 55-51234, 5-551-234", value) == []
    assert found("12-34-56 123456", ("phone", b"12-34-56")) == []  # fewer than seven are no number


@pytest.mark.parametrize(
    ("value", "kind", "text", "wanted"),
    [
        (b"Ann.Lee@Site.org", "email", "ANN.LEE@SITE.ORG", "ANN.LEE@SITE.ORG"),
        (b"ann@site.org", "email", "q%3Aann%40site.org.Next", "ann%40site.org"),
        (b"ann@site.org", "email", "joann@site.org", ""),
        (b"ann@site.org", "email", "ann@site.organic", ""),
        (b"DE89 3704 0044 0532 0130 00", "iban", "x_de89370400440532013000.pdf", "de89370400440532013000"),
        (b"DE89370400440532013000", "iban", "DE89-3704-0044-0532-0130-00", "DE89-3704-0044-0532-0130-00"),
        (b"DE89370400440532013000", "iban", "XDE89370400440532013000", ""),
        (b"AB123456C", "gb_nino", "AB 12 34 56 C", "AB 12 34 56 C"),
        (b"12345678-Z", "es_dni", "12.345.678-Z", "12.345.678-Z"),
        (b"4111 1111 1111 1111", "card", "row 4111111111111111", "4111111111111111"),
        (b"19811218-9876", "se_pnr", "8112189876", "8112189876"),
        (b"123-45-6789", "ssn", "no 123456789 of", "123456789"),
    ],
)
def test_other_kinds(value: bytes, kind: str, text: str, wanted: str) -> None:
    assert "".join(found(text, (kind, value))) == wanted


def in_context(
    folder: Path, docs: pa.Table, count: int, params: dict[str, Any], scheduler: Any = None
) -> Context:
    made = recipe(redact=params)
    parts = partitions(Folder(folder / "in"), docs, count)
    return Context(made, Folder(folder), Folder(folder / "redact"), parts, {}, scheduler or Here())


def both_passes(context: Context) -> pa.Table:
    """The documents of all partitions after the stage."""
    stage = Redact(context.recipe)
    if stage.looks_across:
        stage.prepare(context)
    tables = [stage.transform(context.folder, part.name)(part.read()).kept for part in context.partitions]
    return pa.concat_tables(tables)


TEXTS = [
    "call (212) 736-3100 or write to ann@site.org", "row 2127363100", "nothing", "ann@site.orgx 020 7183 8750",
    "phone: +44 20 7183 8750", "2071838750 and 02071838750; 442071838750", "DE89370400440532013000", "a_DE89370400440532013000",
]  # fmt: skip


@pytest.mark.parametrize("named", [False, True], ids=["tag", "pseudonym"])
def test_a_datum_recognised_in_one_partition_goes_from_all_and_keeps_its_pseudonym(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setenv("CORPUSMILL_REDACT_KEY", "a key for these tests only")
    params = {"replacement": "pseudonym" if named else "tag"}
    whole = both_passes(in_context(tmp_path / "one", documents(TEXTS), 1, params))
    context = in_context(tmp_path / "many", documents(TEXTS), 8, params)
    assert both_passes(context) == whole
    texts = whole["text"].to_pylist()
    left = json.dumps(texts)
    assert not [
        value for value in ("7363100", "7183 8750", "71838750", "DE8937", "ann@site") if value in left
    ]
    number = texts[0].removeprefix("call ").partition(" or ")[0]
    british = texts[4].removeprefix("phone: ")
    assert texts[1] == f"row {number}"
    assert texts[5] == f"{british} and {british}; {british}"  # digits without a country, which the set knows
    again = both_passes(in_context(tmp_path / "again", whole, 2, params))
    assert again == whole
    record = read_set(context.folder)
    assert record is not None and (record.key is None) == named


def test_one_document_at_a_time_where_nothing_is_looked_for_everywhere(tmp_path: Path) -> None:
    texts = both_passes(in_context(tmp_path, documents(TEXTS), 2, {"everywhere": []}))["text"].to_pylist()
    assert texts[1] == TEXTS[1] and "<PHONE>" in texts[0]
    assert not (tmp_path / "redact").exists()


def test_a_kind_that_removes_documents_removes_those_with_the_bare_number(tmp_path: Path) -> None:
    docs = documents(["card 4111 1111 1111 1111", "x4 4111111111111111 1111", "plain"])
    kept = both_passes(in_context(tmp_path, docs, 3, {"replacements": {"card": "remove"}}))
    assert kept["text"].to_pylist() == ["plain"]


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_killed_while_it_collects_it_goes_on_to_the_same_bytes(tmp_path: Path, stop: int) -> None:
    calm = in_context(tmp_path / "calm", documents(TEXTS), 5, {})
    Redact(calm.recipe).prepare(calm)
    killed = in_context(tmp_path / "killed", documents(TEXTS), 5, {}, Here(stop_after=stop))
    with pytest.raises(KeyboardInterrupt):
        Redact(killed.recipe).prepare(killed)
    assert load(killed.folder) is None
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed/redact").rglob("*.u64")}
    assert len(kept) == stop
    files, _ = Redact(killed.recipe).prepare(
        in_context(tmp_path / "killed", documents(TEXTS), 5, {}, Here(reverse=True))
    )
    assert contents(tmp_path / "killed/redact") == contents(tmp_path / "calm/redact")
    assert {path: path.stat().st_mtime_ns for path in kept} == kept  # what was finished is used again
    assert [file.path for file in files] == ["private/known.u64", "private/set.json"]


def test_the_set_is_merged_in_ranges_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = documents([f"p{i}@site.org (212) 736-{i:04d}" for i in range(3000, 3400)])
    one = in_context(tmp_path / "one", docs, 3, {})
    Redact(one.recipe).prepare(one)
    monkeypatch.setattr(prepare, "RANGE_BYTES", 1000)
    many = in_context(tmp_path / "many", docs, 3, {})
    Redact(many.recipe).prepare(many)
    assert contents(tmp_path / "one/redact") == contents(tmp_path / "many/redact")
    data = np.fromfile(tmp_path / "one/redact/private/known.u64", "<u8")
    assert len(data) > 1600 and (np.diff(data.astype(object)) > 0).all()


def test_a_set_that_is_missing_damaged_or_of_another_key_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_REDACT_KEY", "a key for these tests only")
    context = in_context(tmp_path, documents(TEXTS), 1, {"replacement": "pseudonym"})
    stage = Redact(context.recipe)
    with pytest.raises(WorkError, match="is missing; run redact again"):
        stage.transform(context.folder, "00000")
    stage.prepare(context)
    monkeypatch.setenv("CORPUSMILL_REDACT_KEY", "some other key of these tests")
    with pytest.raises(WorkError, match="another key"):
        load(context.folder)
    monkeypatch.delenv("CORPUSMILL_REDACT_KEY")
    with pytest.raises(UserError, match="CORPUSMILL_REDACT_KEY is empty"):
        load(context.folder)
    assert "a key for these" not in "".join(map(str, contents(tmp_path).values()))
    monkeypatch.setenv("CORPUSMILL_REDACT_KEY", "a key for these tests only")
    with (tmp_path / "redact/private/known.u64").open("r+b") as file:
        file.write(b"\xff")
    with pytest.raises(WorkError, match="bytes changed"):
        load(context.folder)


@settings(max_examples=100, deadline=None)
@given(st.lists(pieces, max_size=4), st.lists(st.sampled_from(PII), max_size=6), st.booleans())
def test_any_text_is_settled_with_any_set(texts: list[str], values: list[str], named: bool) -> None:
    kinds = ("email", "phone", "card", "iban", "ssn", "pl_pesel", "gb_nino")
    datum = [
        (kind, value.encode())
        for value in values
        for kind in kinds
        if kind in ("email", "phone") or len(value) < 30
    ]
    made = Known.of(entries(datum, KEY, REGIONS), KEY, REGIONS)
    params = RedactParams(replacement="pseudonym" if named else "tag")
    docs = documents([text.encode("utf-8", "ignore").decode() for text in texts])
    once = redact(docs, params, b"a key for these tests only", made)
    once.kept.validate(full=True)
    again = redact(once.kept, params, b"a key for these tests only", made)
    assert again.kept == once.kept and len(again.decisions) == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([v.encode() for v in PII]), max_size=8).map(b"".join)
)
def test_the_search_takes_any_bytes(data: bytes) -> None:
    made = known(
        ("phone", b"+44 20 7946 0958"), ("email", b"ann@site.org"), ("iban", b"DE89370400440532013000")
    )
    for hit in made.find(data + b"\0"):
        assert 0 <= hit.start < hit.end <= len(data)
