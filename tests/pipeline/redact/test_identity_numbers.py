"""National numbers: found in their forms, left alone without their name or with a wrong digit."""

from __future__ import annotations

import random
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.redact import Kind
from corpusmill.pipeline.redact.batch import Look, find
from corpusmill.pipeline.redact.identity_numbers import NUMBERS, form, is_number
from corpusmill.schemas.stages import DEFAULT_KINDS

# Each from the documentation of python-stdnum or of the issuing office.
GOOD: list[tuple[Kind, str]] = [
    ("br_cpf", "390.533.447-05"), ("br_cpf", "CPF 39053344705"),
    ("ca_sin", "SIN 123-456-782"), ("ca_sin", "social insurance number: 123456782"),
    ("de_idnr", "Steuer-ID: 36574261809"), ("de_idnr", "IdNr. 36 574 261 809"),
    ("es_dni", "DNI 54362315K"), ("es_dni", "54.362.315-K"), ("es_dni", "NIE: X2482300W"), ("es_dni", "d.n.i. 54362315-K"),
    ("fr_nir", "2 95 10 99 126 111 93"), ("fr_nir", "295109912611193"), ("fr_nir", "2951099126111 93"),
    ("fr_nir", "253072B07300470"),
    ("gb_nhs", "NHS number 943 476 5870"), ("gb_nhs", "NHS: 9434765870"),
    ("gb_nino", "AB 12 34 56 C"), ("gb_nino", "National Insurance AB123456C"),
    ("in_aadhaar", "Aadhaar: 2341 2341 2346"), ("in_aadhaar", "aadhaar no 234123412346"), ("in_aadhaar", "आधार 2341 2341 2346"),
    ("it_cf", "RCCMNL83S18D969H"), ("it_cf", "rccmnl83s18d969h"),
    ("nl_bsn", "BSN 111222333"), ("nl_bsn", "burgerservicenummer 1112.22.333"),
    ("pl_pesel", "PESEL 44051401359"),
    ("se_pnr", "19811218-9876"), ("se_pnr", "personnummer 811218-9876"), ("se_pnr", "personnr 198112189876"),
]  # fmt: skip


def found(text: str) -> list[tuple[str, str]]:
    data = text.encode() + b"\x00"
    return [(h.kind, data[h.start : h.end].decode()) for h in find(data, Look(DEFAULT_KINDS, ("US", "GB")))]


def only_value(text: str) -> str:
    start = next(
        i for i, c in enumerate(text) if c.isdigit() or text[i:] in ("RCCMNL83S18D969H", "rccmnl83s18d969h")
    )
    for lead in ("AB ", "AB", "X"):
        if text[:start].endswith(lead) and not text[:start].endswith(("NIX", "SAX")):
            return text[start - len(lead) :]
    return text[start:]


@pytest.mark.parametrize(("kind", "text"), GOOD)
def test_found(kind: Kind, text: str) -> None:
    assert found(f"see {text}, thanks") == [(kind, only_value(text))]
    assert found(f"({text})\n") == [(kind, only_value(text))]


@pytest.mark.parametrize(
    "text",
    [
        # no word says what it is
        "39053344705", "123-456-782", "36574261809", "54362315K", "X2482300W", "AB123456C", "2341 2341 2346", "111222333",
        "44051401359", "811218-9876", "part 36 574 261 809",
        # a wrong check digit
        "390.533.447-06", "SIN 123-456-783", "IdNr 36574261890", "DNI 54362315L", "2 95 10 99 126 111 94", "BSN 111222334",
        "Aadhaar 2341 2341 2347", "RCCMNL83S18D969I", "PESEL 44051401358", "19811218-9877",
        # never issued
        "SIN 046-454-286", "2 95 10 00 126 111 12", "NHS 999 000 9724", "Aadhaar 0393 4777 1690", "PESEL 80861340264",
        "18770402-8906", "GB 12 34 56 C", "DQ 12 34 56 C", "national insurance QQ123456C", "RRDGSD50E55Z057L",
        # part of something longer
        "x390.533.447-05", "390.533.447-05-1", "1390.533.447-05", "RCCMNL83S18D969H1",
        "/RCCMNL83S18D969H", "RCCMNL83S18D969H-2", "AB 12 34 56 CD", "AAB 12 34 56 C", "NIE: X2482300W9", "19811218-98761",
    ],
)  # fmt: skip
def test_left_alone(text: str) -> None:
    kinds = {kind for kind, _ in found(text)}
    assert not kinds & set(NUMBERS)


def test_no_name_reaches_over_a_documents_end() -> None:
    assert find(b"BSN\x00111222333\x00", Look(DEFAULT_KINDS, ())) == []


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(NUMBERS)), st.randoms(use_true_random=False))
def test_any_value_of_its_form_is_judged(kind: Kind, chance: random.Random) -> None:
    """Without an error; and none whose check digits are wrong by python-stdnum is taken for a number."""
    wanted = chance.choice(sorted(NUMBERS[kind].sure | NUMBERS[kind].named))
    signs = {"A": "ABCKXYZ", "9": "0123456789"}
    value = "".join(chance.choice(signs.get(sign, sign)) for sign in wanted)
    assert form(value) == wanted
    judged = is_number(kind, value)
    if kind not in (
        "gb_nino",
        "se_pnr",
        "es_dni",
    ):  # without check digits, in another notation, with two kinds of them
        assert not judged or import_module(f"stdnum.{NUMBERS[kind].module}").is_valid(value)
