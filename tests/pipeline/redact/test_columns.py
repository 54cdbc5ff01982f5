"""Tables: values under a head that names them, whole rows only; what else stands in tables is left."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.pipeline.redact.apply import redact
from corpusmill.pipeline.redact.batch import Look, find
from corpusmill.schemas.stages import DEFAULT_KINDS, RedactParams
from tests.pipeline.corpus import documents


def found(text: str, before: str = "") -> list[tuple[str, str]]:
    """Kinds and values found in a text, behind another one."""
    data = f"{before}\0{text}\0".encode()
    hits = find(data, Look(DEFAULT_KINDS, ("US", "GB")))
    return [(hit.kind, data[hit.start : hit.end].decode()) for hit in hits]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("nombre;telefono;alta\nAna;743 600 001;2020-01-02\nLuis;879088238;1", [("phone", "743 600 001"), ("phone", "879088238")]),
        ('name,"Phone No.",n\r\n"Lee, Ann","961.524.0475",5\r\nBo,028 9018 0824 x12,7\r\n', [("phone", "961.524.0475"), ("phone", "028 9018 0824 x12")]),
        ("phoneNumber\tid\n8936641699\t1\n", [("phone", "8936641699")]),
        ("| Nombre | Teléfono | Nº pedido |\n|---|---|---|\n| Ana | 912345678 | 123456 |", [("phone", "912345678"), ("order_id", "123456")]),
        ("a,patient_id\nx,0012345\ny,\nz,PT-10023", [("patient_id", "0012345"), ("patient_id", "PT-10023")]),
        ("ssn,customer number\n28 1234567840,8811223", [("social_security", "28 1234567840"), ("account_id", "8811223")]),
        ("姓名,电话\n李,١٣٨١٢٣٤٥٦٧٨", [("phone", "١٣٨١٢٣٤٥٦٧٨")]),
    ],
)  # fmt: skip
def test_values_under_their_head(text: str, values: list[tuple[str, str]]) -> None:
    assert found(text) == values
    assert found(text, "the text before") == values


@pytest.mark.parametrize(
    "text",
    [
        "gene,cell,order,case\nbrca,1234567,123456,778899",  # heads that also mean something else
        "city,phone\nUlm,879088238,7\nBonn",  # rows of another length
        "city,phones sold\nUlm,12345678\nBonn,1.234.567,8",
        "day,call\nmon,12.05.2020",
        "id;mobile\n1;2020-01-02\n2;n/a\n3;12345678",
        "a letter, and then the phone\nrang, twice, 879088238",
        "name,phone",
    ],
)
def test_left_alone(text: str) -> None:
    assert found(text) == []


CELLS = st.text(st.characters(exclude_characters='\0\r\n"', exclude_categories=("Cs",)), max_size=12)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=3), max_size=6), st.sampled_from(",;\t|"))
def test_any_table_is_read_and_a_second_pass_finds_nothing(rows: list[list[str]], delimiter: str) -> None:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerows([["name", "phone"], ["Ann", "8936641699"], *rows])
    once = redact(documents([file.getvalue()]), RedactParams()).kept
    text = once["text"][0].as_py()
    assert text.splitlines()[1] == f"Ann{delimiter}<PHONE>"
    assert redact(once, RedactParams()).kept["text"][0].as_py() == text
