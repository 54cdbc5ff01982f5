"""Telephone numbers as people of many countries write them, without a region named; and what is none."""

from __future__ import annotations

import pyarrow as pa
import pytest

from corpusmill.pipeline.redact import phone_words
from corpusmill.pipeline.redact.apply import redact
from corpusmill.pipeline.redact.batch import Look, find
from corpusmill.pipeline.redact.phone_plans import known_region
from corpusmill.schemas.stages import DEFAULT_KINDS, RedactParams
from tests.pipeline.corpus import documents


def found(text: str) -> list[str]:
    data = text.encode() + b"\x00"
    hits = find(data, Look(DEFAULT_KINDS, ("US", "GB")))
    return [data[hit.start : hit.end].decode() for hit in hits if hit.kind == "phone"]


def test_every_language_has_words_and_regions_with_a_plan() -> None:
    assert len(phone_words.LANGUAGES) >= 20
    for words in phone_words.LANGUAGES.values():
        assert words.labels and words.regions
        assert all(known_region(region) for region in words.regions)
        for word in (*words.labels, *words.near):
            assert all(len(form) >= 3 for form in phone_words.spellings(word.removeprefix("*")))


@pytest.mark.parametrize("language", sorted(phone_words.LANGUAGES))
def test_any_label_of_any_language_marks_a_number_of_no_plan(language: str) -> None:
    for word in phone_words.LANGUAGES[language].labels:
        label = word.removeprefix("*")
        for spelled in (label, label.capitalize(), label.upper()):
            if spelled.lower() == label:  # "ß" and the like have no capital of their own
                assert found(f"x {spelled}: 99 88 77 66 55") == ["99 88 77 66 55"], spelled


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Tfno: 91 123 45 67", ["91 123 45 67"]), ("Teléfono: 922 31 20 00", ["922 31 20 00"]), ("TELÉFONO 922312000", ["922312000"]),
        ("Telf.: 91-123-45-67, 91 234 56 78 y 600 123 456", ["91-123-45-67", "91 234 56 78", "600 123 456"]),
        ("Tel./Fax: 91 123 45 67/68", ["91 123 45 67/68"]), ("Tel. 91 123 45 67/91 765 43 21", ["91 123 45 67", "91 765 43 21"]),
        ("Tel. 91 123 45 67 / 91 765 43 21 (centralita)", ["91 123 45 67", "91 765 43 21"]), ("Tel.91 330 30 00", ["91 330 30 00"]),
        ("Teléfono de contacto (hijo): 600.123.456", ["600.123.456"]), ("Tel. (Madrid): 91 123 45 67", ["91 123 45 67"]),
        ("Tel: +34 943 007 000, ext. 7321", ["+34 943 007 000, ext. 7321"]), ("Puede llamarnos al 922 31 20 00.", ["922 31 20 00"]),
        ("Tél. : 01 42 68 53 00", ["01 42 68 53 00"]), ("appelez le 01 42 68 53 00", ["01 42 68 53 00"]),
        ("Rufnummer: 030/901820-15", ["030/901820-15"]), ("Diensttelefon 030 9018200", ["030 9018200"]),
        ("Handy 0171 1234567 Durchwahl 12", ["0171 1234567 Durchwahl 12"]), ("тел. 8 495 123 45 67 доб. 12", ["8 495 123 45 67 доб. 12"]),
        ("ТЕЛЕФОН: 123-45-67", ["123-45-67"]), ("电话：010-12345678转123", ["010-12345678转123"]), ("手机：13812345678", ["13812345678"]),
        ("هاتف: 02-27354567", ["02-27354567"]), ("फ़ोन: 98765 43210", ["98765 43210"]), ("電話 03-1234-5678", ["03-1234-5678"]),
        # without a word: brackets, international prefixes, another script around it
        ("(34) 91 123 45 67", ["(34) 91 123 45 67"]), ("(0034) 91 123 45 67 oficina", ["(0034) 91 123 45 67"]),
        ("00 49 (0) 30 901820", ["00 49 (0) 30 901820"]), ("+49 (0) 30 901820", ["+49 (0) 30 901820"]), ("+44(0)20 7183 8750", ["+44(0)20 7183 8750"]),
        ("(+57) 1 234 5678", ["(+57) 1 234 5678"]), ("наш адрес, 8 (495) 123-45-67, с 9 утра", ["8 (495) 123-45-67"]),
        ("si lo veis llamadme porfa 971 99 66 63", ["971 99 66 63"]),
        # fields of a row parted by commas
        ("Bo,366-903-8360,2020-01-02,12.5", ["366-903-8360"]), ("7,+1-471-750-4334,55", ["+1-471-750-4334"]), ("4,(028) 9018 0643,3", ["(028) 9018 0643"]),
        # a letter for a word
        ("Nina\nP: 4157363100 | M: 0306 999 0731", ["4157363100", "0306 999 0731"]),
        # English
        ("She dialed 020 7183 8750 twice", ["020 7183 8750"]), ("You can be reached at 555-0123 x44.", ["555-0123 x44"]),
        ("my number is 2127363100", ["2127363100"]), ("Phone of the ward: 91 330 3000", ["91 330 3000"]),
    ],
)  # fmt: skip
def test_found(text: str, numbers: list[str]) -> None:
    assert found(text) == numbers


@pytest.mark.parametrize(
    "text",
    [
        "Telephone subscribers: 1 234 567", "number of mobile phones: 12 345 678", '"mobile": 213920363', "Tel Aviv 1998-2003",
        "doi = 10.1016/j.cell.2008.10.015", "NASS: 28 12345678 40", "NHC: 912345678", "NIF: 912345678", "Expediente: 922 31 20 00",
        "fax 12.05.2021", "teléfono, 28040 Madrid", "precio 600 123 456 euros", "por el año 2019/2020", "(34) 91 y 45 67", "pág. 922-930",
        "entre 1998 y 2003, llamar", "t: 1634567890", "Dr. T. 12345678", "fig. C. 983325405", "1 234 567,89", "7,415736310,5", "cap. M: 123456789", "41.40338, 2.17403", "v2.33.44.5567", "ISBN 978-84-376-0494-7, tel", "номер 123456789",
    ],
)  # fmt: skip
def test_left_alone(text: str) -> None:
    assert found(text) == []


def in_language(texts: list[str], codes: list[str | None]) -> pa.Table:
    docs = documents(texts)
    column = docs.schema.get_field_index("language")
    return docs.set_column(column, docs.schema.field(column), pa.array(codes, docs.schema.field(column).type))


def test_a_letter_stands_for_a_word_in_a_text_of_the_language() -> None:
    text, other = "Marta Gil\nT. 983325405 - M. 871 21 98 90", "Marta Gil\nX. 983325405, tomo T. 12345"
    made = redact(in_language([text, other, text], ["es", "es", None]), RedactParams()).kept["text"]
    assert made.to_pylist() == ["Marta Gil\nT. <PHONE> - M. <PHONE>", other, text]


def test_the_documents_language_decides_on_numbers_without_a_word() -> None:
    texts = ["Pregunten por Ana, 91 330 30 00, o en la puerta"] * 3
    docs = in_language(texts, ["es", None, "ja"])
    made = redact(docs, RedactParams()).kept["text"].to_pylist()
    assert made == ["Pregunten por Ana, <PHONE>, o en la puerta", *texts[1:]]
    assert redact(docs, RedactParams(phone_languages=False)).kept["text"].to_pylist() == texts
    # Each document by its own language, whatever stands beside it in a batch.
    assert [redact(docs.slice(row, 1), RedactParams()).kept["text"][0].as_py() for row in range(3)] == made


def test_regions_of_languages_and_scripts() -> None:
    assert (
        phone_words.regions_of_language("zh-Hant")[0] == "CN" and phone_words.regions_of_language("xx") == ()
    )
    assert phone_words.regions_of_script("звонок 12".encode())[0] == "RU"
    assert (
        phone_words.regions_of_script(b"plain 12") == () == phone_words.regions_of_script("día 12".encode())
    )
    assert "ES" in phone_words.regions_of_word("móvil".encode()) and phone_words.regions_of_word(b"tel") == ()
