"""URLs stay URLs, JSON stays JSON, and what is not replaced keeps its bytes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.redact.apply import Redactor, redact
from corpusmill.pipeline.redact.fields import redact_column
from corpusmill.pipeline.redact.slots import json_slots, json_texts
from corpusmill.schemas.stages import RedactParams
from corpusmill.schemas.tables import DOCUMENTS
from tests.pipeline.corpus import documents
from tests.pipeline.redact.test_apply import KEY, PII, pieces

TAGS, NAMES = Redactor(RedactParams()), Redactor(RedactParams(replacement="pseudonym"), KEY)


def field(value: str | None, name: str, redactor: Redactor = TAGS) -> Any:
    return redact_column(pa.array([value], pa.string()), name, redactor.find)[0][0].as_py()


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("https://x.org/?m=ann%40site.org&b=1", "https://x.org/?m=%3CEMAIL%3E&b=1"),
        ("https://x.org/?next=%2Fa%3Fm%3Dann%2540site.org", "https://x.org/?next=%2Fa%3Fm%3D%3CEMAIL%3E"),
        ("mailto:ann@site.org?subject=a+b", "mailto:%3CEMAIL%3E?subject=a+b"),
        ("https://ann:hunter2@x.org/a", "https://%3CURL_CREDENTIAL%3E@x.org/a"),
        ("https://x.org/a?token=ab12cd34ef&x=1", "https://x.org/a?token=%3CURL_CREDENTIAL%3E&x=1"),
        ("https://x.org/?tel=%2B44+20+7183+8750#top", "https://x.org/?tel=%3CPHONE%3E#top"),
        ("https://x.org/?tel=+442071838750", "https://x.org/?tel=%3CPHONE%3E"),
        ("http://93.184.216.34:8080/a", "http://%3CIP%3E:8080/a"),
        ("http://[2606:4700:4700::1111]/a", "http://%3CIP%3E/a"),
        ("https://x.org/é%C3%A9/%FF?q=%41", None),
        ("https://x.org/2024/05/06/title-12345.html", None),
        ("no url, mail ann@site.org", "no url, mail %3CEMAIL%3E"),
    ],
)  # fmt: skip
def test_urls(url: str, wanted: str | None) -> None:
    made = field(url, "url")
    assert made == (wanted or url)
    assert urlsplit(made).scheme == urlsplit(url).scheme
    assert field(made, "url") == made


def test_the_host_of_a_url_with_pseudonyms_is_still_one() -> None:
    made = field("http://[2606:4700:4700::1111]:80/a", "url", NAMES)
    assert urlsplit(made).hostname.startswith("2001:db8:") and urlsplit(made).port == 80
    mail = field("https://x.org/?m=ann%40site.org", "url", NAMES)
    assert unquote(mail).endswith("@example.com") and "@" not in mail


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ('{"a": "ann@site.org",  "n": [1.50, 1e3, null, true, "\\u00e9"]}', '{"a": "<EMAIL>",  "n": [1.50, 1e3, null, true, "\\u00e9"]}'),
        ('{"ann@site.org": 1, "bob@site.org": 2, "<EMAIL>": 3}', '{"<EMAIL> (2)": 1, "<EMAIL> (3)": 2, "<EMAIL>": 3}'),
        ('{"phone_number": "2127363100", "x": "2127363100"}', '{"phone_number": "<PHONE>", "x": "2127363100"}'),
        ('{"phone": [{"x": 1}, "212 736 3100"], "n": "2127363100"}', '{"phone": [{"x": 1}, "<PHONE>"], "n": "2127363100"}'),
        ('{"phone": 2127363100, "n": 2127363100, "f": 2127363100.5}', '{"phone": 0, "n": 2127363100, "f": 2127363100.5}'),
        ('{"t": "a\\nann@site.org\\n\\"q\\""}', '{"t": "a\\n<EMAIL>\\n\\"q\\""}'),
        ('{"u": "https://x.org/?m=ann%40site.org"}', '{"u": "https://x.org/?m=%3CEMAIL%3E"}'),
        ('{"password": "sk9fA83jdPq0xZ71LmNb"}', '{"password": "<SECRET>"}'),
        ('{"id": 123456789012345678901234567890, "m": "ann@site.org"}', '{"id": 123456789012345678901234567890, "m": "<EMAIL>"}'),
        ('{"a": "ann@site.org", "a": 1}', '{"a": "<EMAIL>", "a": 1}'),
        ("no JSON: ann@site.org", "no JSON: <EMAIL>"),
        ('{"half": "\\ud800 ann@site.org", "m": "ann@site.org"}', '{"half": "\\ud800 ann@site.org", "m": "<EMAIL>"}'),
    ],
)  # fmt: skip
def test_json(value: str, wanted: str) -> None:
    assert field(value, "metadata") == wanted
    assert field(wanted, "metadata") == wanted


keys = st.sampled_from(["phone", "m", "ann@site.org", "card", "a b"]) | st.text(max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | pieces
    | st.sampled_from(PII),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def shape(value: Any) -> Any:
    """The types of a JSON value, and how many members each part has."""
    if isinstance(value, dict):
        return Counter(map(str, map(shape, value.values())))
    return [shape(item) for item in value] if isinstance(value, list) else type(value).__name__


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(keys, values, max_size=4), st.booleans(), st.booleans())
@example({"phone": -9223372036854775809}, False, False)
@example({"ann@site.org": {"bob@site.org": ["212 736 3100", 4111111111111111]}}, True, False)
def test_json_stays_json_of_the_same_shape(value: dict[str, Any], named: bool, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "ignore").decode()
    redactor = NAMES if named else TAGS
    made = field(text, "metadata", redactor)
    assert shape(json.loads(made)) == shape(json.loads(text))
    glance = json_texts(text)  # what is read without slots is the same
    assert glance is None or sorted(glance) == sorted(slot.lead + slot.text for slot in json_slots(text))
    assert field(made, "metadata", redactor) == made


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PII) | st.sampled_from(["%40", "%", "%4", "?", "&m=", "+", "[", "]", "%E9", "/"]) | st.text(max_size=6), max_size=6),
       st.booleans(), st.booleans())  # fmt: skip
@example(["%", "4111 1111 1111 1111"], False, True)
@example(["%4", "+44 20 7183 8750"], False, True)
def test_urls_are_settled_and_stay_parseable(parts: list[str], encoded: bool, named: bool) -> None:
    query = "".join(parts).encode("utf-8", "ignore").decode()
    url = f"https://x.org/a?q={quote(query, safe='') if encoded else query}"
    redactor = NAMES if named else TAGS
    made = field(url, "url", redactor)
    assert field(made, "url", redactor) == made
    if encoded:
        assert urlsplit(made).netloc == "x.org" and made.isascii()


def test_fields_of_documents_are_edited_counted_and_named_in_the_decision() -> None:
    docs = documents(["plain", "ann@site.org", "card"])
    columns = {
        "url": ["mailto:ann@site.org", None, "https://x.org/"],
        "metadata": ['{"m": ["ann@site.org", "8.8.8.8"]}', "{}", None],
        "source_id": ["ann@site.org", "1", "2"],
    }
    for name, column in columns.items():
        place = DOCUMENTS.get_field_index(name)
        docs = docs.set_column(place, DOCUMENTS.field(name), pa.array(column, pa.string()))
    outcome = redact(docs, RedactParams())
    assert outcome.kept.schema == DOCUMENTS
    first, second, third = outcome.kept.to_pylist()
    assert first["url"] == "mailto:%3CEMAIL%3E" and json.loads(first["metadata"]) == {
        "m": ["<EMAIL>", "<IP>"]
    }
    assert first["source_id"] == "ann@site.org" and first["text_hash"] == docs["text_hash"][0].as_py()
    assert second["metadata"] == "{}" and third["metadata"] is None
    rows = outcome.decisions.to_pylist()
    assert [row["detail"] for row in rows] == ["url: 1 email; metadata: 1 email, 1 ip", None]
    assert (
        rows[0]["edits"] == [] and len(rows[1]["edits"]) == 1
    )  # edits are of the text: lineage follows them
    assert dict(outcome.counters) == {
        "documents_edited": 2, "email": 3, "field/metadata/email": 1, "field/metadata/ip": 1, "field/url/email": 1, "ip": 1,
        "source/web/email": 3, "source/web/ip": 1,
    }  # fmt: skip
    again = redact(outcome.kept, RedactParams())
    assert again.kept == outcome.kept and len(again.decisions) == 0
    every = redact(docs, RedactParams(fields=["source_id"])).kept
    assert every["source_id"].to_pylist() == ["<EMAIL>", "1", "2"] and every["url"] == docs["url"]


def test_a_document_is_removed_for_what_is_in_a_field_alone() -> None:
    docs = documents(["plain", "other"])
    place = DOCUMENTS.get_field_index("metadata")
    column = pa.array(['{"card": "4111 1111 1111 1111"}', None], pa.string())
    outcome = redact(
        docs.set_column(place, DOCUMENTS.field(place), column), RedactParams(replacements={"card": "remove"})
    )
    assert outcome.kept["text"].to_pylist() == ["other"]
    row = outcome.decisions.to_pylist()[0]
    assert (row["outcome"], row["rule"], row["detail"]) == ("removed", "redact.card", "metadata: 1 card")


@pytest.mark.parametrize("depth", [100, 700, 5_000])
def test_json_of_any_depth_is_redacted(depth: int) -> None:
    """A Parquet input may bring metadata along that are nested deeper than Python recurses."""
    value = "[" * depth + '"write to ann@site.org"' + "]" * depth
    assert field(value, "metadata") == value.replace("ann@site.org", "<EMAIL>")
