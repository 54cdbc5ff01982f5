"""Texts by language out of translators' files: their languages, their markup, and what is no text of its language."""

from __future__ import annotations

import io
import json
import random
import struct
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tools import language_catalogues, language_codes, language_judged, language_texts, train_language


def catalogue(pairs: dict[str, str]) -> bytes:
    """A compiled gettext catalogue."""
    keys = sorted(pairs)
    ids, texts = [key.encode() for key in keys], [pairs[key].encode() for key in keys]
    start = 28 + 16 * len(keys)
    entries, blob = [], b""
    for group in (ids, texts):
        for item in group:
            entries.append(struct.pack("<2I", len(item), start + len(blob)))
            blob += item + b"\x00"
    head = struct.pack("<7I", 0x950412DE, 0, len(keys), 28, 28 + 8 * len(keys), 0, start)
    return head + b"".join(entries) + blob


def test_names_of_languages() -> None:
    wanted = {
        "pt_BR": "pt", "zh_TW": "zh", "zh-hant": "zh", "sr@latin": "sr", "ca@valencia": "ca", "kmr_Latn": "ku", "ku-arab": "ckb",
        "nb_NO": "no", "nn": "nn", "iw": "he", "in": "id", "fil": "tl", "eng": "en", "arb_Arab": "ar", "als": "gsw", "bat-smg": "sgs",
        "es_MX.UTF-8": "es", "be-tarask": "be", "mo": "ro", "haw": "haw", "C": None, "LC_MESSAGES": None, "qqq": None,
        "tlh": None, "arz": None, "zh-classical": None, "description": None,
    }  # fmt: skip
    assert {name: language_codes.label(name) for name in wanted} == wanted


def test_messages_of_each_kind_of_file() -> None:
    mo = catalogue(
        {
            "": "Content-Type: text/plain; charset=UTF-8\n",
            "Open": "Öffnen",
            "Same": "Same",
            "menu\x04Save file": "Datei sichern",
        }
    )
    read = list(language_catalogues.messages("usr/share/locale/de/LC_MESSAGES/x.mo", mo, "x"))
    assert sorted(read) == [("de", "Datei sichern"), ("de", "Öffnen"), ("en", "Open"), ("en", "Save file")]
    data = json.dumps(
        {"@metadata": {"authors": ["A B"]}, "one": "Uno dos", "more": {"two": ["tres"]}}
    ).encode()
    assert list(language_catalogues.messages("i18n/core/es.json", data, "m")) == [
        ("es", "Uno dos"),
        ("es", "tres"),
    ]
    pack = io.BytesIO()
    with zipfile.ZipFile(pack, "w") as file:
        file.writestr("a.properties", "key = Vula ifayile\n")
        file.writestr("b.dtd", '<!ENTITY a.b "Gcina konke">')
    read = list(language_catalogues.messages("x.xpi", pack.getvalue(), "firefox-esr-l10n-xh"))
    assert read == [("xh", "Vula ifayile"), ("xh", "Gcina konke")]


@given(
    st.binary(max_size=300),
    st.sampled_from(["a/de/LC_MESSAGES/a.mo", "t_de.qm", "i18n/de.json", "x.xpi", "a.desktop"]),
)
def test_damaged_files_are_no_error(data: bytes, name: str) -> None:
    for head in (
        b"",
        b"\xde\x12\x04\x95",
        b"\x3c\xb8\x64\x18" * 4 + b"\x69\x00\x00\x00\x20\x03\x00\x00\x00\x08",
    ):
        list(language_catalogues.messages(name, head + data, "x"))


def test_markup_is_taken_out() -> None:
    messages = {
        "<b>Öffnen</b> von %s in %(folder)s": "Öffnen von in", "_Datei &amp; mehr": "Datei & mehr", "Ouvrir (&O) {name} $1": "Ouvrir",
        "see https://x.org/a?b or a@b.org": "see or", "{{PLURAL:$1|page|pages}} [[Main|first]]": "page|pages first",
    }  # fmt: skip
    assert {text: language_catalogues.plain(text) for text in messages} == messages


def test_what_is_text() -> None:
    assert language_texts.is_text("hi", "नदी शहर के उत्तर में") and language_texts.is_text("zh", "打开文件")
    assert not language_texts.is_text("de", "Öffnen") and not language_texts.is_text("de", "12 34 / 56 -- x")
    assert language_texts.in_script("uk", ["річка тече", "river flows", "річка river of the valley"]) == [
        "річка тече"
    ]


def test_english_and_shared_messages_are_dropped() -> None:
    rows = {
        label: {1: "river flows", number: f"text of {label}"}
        for number, label in enumerate(("fr", "it"), start=10)
    }
    common = {
        label: {5: "hotel taxi", 20 + n: f"own words {label}"}
        for n, label in enumerate(("es", "pt", "gl", "ca"))
    }
    found = {(label, "catalogues", "p"): own for label, own in {**rows, **common}.items()}
    table = language_texts._without_shared(found, {1})
    assert sorted(table["text"].to_pylist()) == sorted(
        ["text of fr", "text of it", *(f"own words {label}" for label in ("es", "pt", "gl", "ca"))]
    )


def test_examples_are_the_same_each_time_and_of_1_to_25_words() -> None:
    rng = random.Random(0)
    texts = [
        " ".join(rng.choices(["umfula", "uqala", "emagqumeni", "asenyakatho", "nedolobha"], k=9))
        for _ in range(900)
    ]
    found = [
        list(train_language.examples("zu", {"catalogues": texts, "books": texts[:30]}, 0.5)) for _ in range(2)
    ]
    assert found[0] == found[1] and len(found[0]) > 300
    assert {len(line.split()) for line in found[0]} == set(range(1, 26))
    table = pa.table([["zu"] * 900, ["catalogues"] * 900, ["p"] * 900, texts], schema=language_texts.SCHEMA)
    made = train_language.lines(table, 0.1)
    assert {line.split()[0] for line in made} == {"__label__zu", "__label__und"}


def test_a_language_becomes_a_label_by_its_words() -> None:
    many, few = {"catalogues": ["ka tere te awa ki te moana"] * 300}, {"catalogues": ["ka tere te awa"] * 9}
    assert train_language.is_learnt("mi", many) and not train_language.is_learnt("mi", few)
    assert train_language.is_learnt(
        "mi", {**few, "declaration": ["he mea"]}
    ) and not train_language.is_learnt("isv", many)


def test_cld2s_texts(tmp_path: Path) -> None:
    code = 'const char* kTeststr_ig_Latn = " Chineke b\u1ee5 aha \\"x\\" "\n "nke";\nconst char* kTeststr_zzb_Latn = "bork";\n#else\nconst char* kTeststr_ig_Latn = "b\\xE1";\n'
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz") as packed:
        member = tarfile.TarInfo("pycld2/cld2/internal/unittest_data.h")
        member.size = len(code.encode())
        packed.addfile(member, io.BytesIO(code.encode()))
    judged = language_judged.snippets(tmp_path / "s.tar.gz")
    assert (judged.texts, judged.labels) == (['Chineke bụ aha "x" nke'], ["ig"])
