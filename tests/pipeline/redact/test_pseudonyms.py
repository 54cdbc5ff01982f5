"""Pseudonyms: stable, keyed, of the same kind and form, nobody's, and left alone by a second pass."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.pipeline.redact import Kind
from corpusmill.pipeline.redact.apply import redact
from corpusmill.pipeline.redact.identity_numbers import NUMBERS
from corpusmill.pipeline.redact.pseudonyms import NATIONAL, pseudonym, read_key
from corpusmill.schemas.stages import RedactParams
from tests.pipeline.corpus import documents

KEY = b"a key for these tests only"
NAMES = RedactParams(replacement="pseudonym")
SAID: dict[Kind, str] = {
    "br_cpf": "CPF", "ca_sin": "SIN", "de_idnr": "IdNr", "es_dni": "DNI", "gb_nhs": "NHS", "gb_nino": "national insurance",
    "in_aadhaar": "aadhaar", "nl_bsn": "BSN", "pl_pesel": "PESEL", "se_pnr": "personnummer",
}  # fmt: skip
FORMS: dict[Kind, str] = {
    "br_cpf": r"\d{3}\.\d{3}\.\d{3}-\d\d", "ca_sin": r"0\d\d-\d{3}-\d{3}", "de_idnr": r"0\d \d{3} \d{3} \d{3}",
    "es_dni": r"\d{8}[IOU]", "fr_nir": r"[12] \d\d \d\d 00 \d{3} \d{3} \d\d", "gb_nhs": r"999 \d{3} \d{4}",
    "gb_nino": r"QQ \d\d \d\d \d\d [A-D]", "in_aadhaar": r"0\d{3} \d{4} \d{4}", "it_cf": r"[A-Z]{6}\d\d[A-Z]\d\dZ0\d\d[A-Z]",
    "nl_bsn": r"999\d{6}", "pl_pesel": r"\d\d[89]\d{8}", "se_pnr": r"18\d{6}-\d{4}",
}  # fmt: skip


def test_pseudonyms_are_stable_keyed_and_of_the_same_kind() -> None:
    values: dict[Kind, list[str]] = {
        "email": ["José@Site.org", "josé@site.ORG", "jose\u0301@site.org"], "phone": ["+1 212 736 3100", "(212) 736-3100"],
        "card": ["4111 1111 1111 1111", "4111111111111111"], "iban": ["GB82WEST12345698765432", "GB82 WEST 1234 5698 7654 32"],
        "ssn": ["123-45-6789", "123456789"], "ip": ["2606:4700:4700::1111", "2606:4700:4700:0:0:0:0:1111"],
        "mac": ["00:1A:2b:3c:4d:5e", "001a.2b3c.4d5e"], "crypto": ["BC1QW508D6", "bc1qw508d6"], "name": ["Ann Lee", "ann\n LEE"],
        "br_cpf": ["390.533.447-05", "39053344705"], "ca_sin": ["123-456-782", "123 456 782"],
        "de_idnr": ["36574261809", "36 574 261 809"], "es_dni": ["54.362.315-K", "54362315k"],
        "fr_nir": ["2 95 10 99 126 111 93", "295109912611193"], "gb_nhs": ["943 476 5870", "9434765870"],
        "gb_nino": ["AB 12 34 56 C", "ab123456c"], "in_aadhaar": ["2341 2341 2346", "2341\u00a02341\u00a02346"],
        "it_cf": ["RCCMNL83S18D969H", "rccmnl83s18d969h"], "nl_bsn": ["1112.22.333", "111222333"],
        "pl_pesel": ["44051401359"], "se_pnr": ["811218-9876", "19811218-9876", "198112189876", "8112189876"],
    }  # fmt: skip
    for kind, spellings in values.items():
        made = {pseudonym(KEY, kind, s.encode(), ("US",)) for s in spellings}
        assert len(made) == 1, kind
        assert pseudonym(b"another key, of the same length", kind, spellings[0].encode()) not in made
    from stdnum import luhn
    from stdnum.iso7064 import mod_97_10

    for value, form in (("4111 1111 1111 1111", r"4000 00\d\d \d{4} \d{4}"), ("378282246310005", r"3782 82\d{4} \d{5}"),
                        ("30569309025904", r"3056 93\d{4} \d{4}"), ("6011111111111117", r"6011 11\d\d \d{4} \d{4}")):  # fmt: skip
        made_card = pseudonym(KEY, "card", value.encode()).decode()
        assert re.fullmatch(form, made_card) and luhn.is_valid(made_card.replace(" ", ""))
    card = pseudonym(KEY, "card", b"4111111111111111").decode().replace(" ", "")
    iban = pseudonym(KEY, "iban", b"GB82WEST12345698765432").decode()
    assert luhn.is_valid(card) and len(card) == 16
    assert re.fullmatch(r"ZZ\d\d[A-Z]{4}\d{14}", iban)
    assert mod_97_10.is_valid(iban[4:] + iban[:4])
    assert pseudonym(KEY, "email", b"a@b.org").decode().endswith("@example.com")


def test_pseudonyms_do_not_depend_on_the_partition() -> None:
    docs = documents(["a ann@site.org", "b ann@site.org"])
    first, second = redact(docs, NAMES, KEY).kept["text"].to_pylist()
    assert first[2:] == second[2:] == redact(docs.slice(1), NAMES, KEY).kept["text"][0].as_py()[2:]


@given(st.sampled_from([kind for kind in NAMES.kinds if kind not in NUMBERS]), st.integers(0, 2**40))
@settings(max_examples=150, deadline=None)
def test_no_pseudonym_is_found_again(kind: Kind, number: int) -> None:
    value = {"ip": f"8.8.{number % 256}.8", "card": str(number), "ssn": str(number)}.get(
        kind, f"a{number}@b.org"
    )
    made = pseudonym(KEY, kind, value.encode()).decode()
    docs = documents([f"phone card ssn address {made} end", made, f"api_key = {made}"])
    assert len(redact(docs, NAMES, KEY).decisions) == 0


@pytest.mark.parametrize(
    ("number", "form"),
    [
        ("+1 212 736 3100", r"\+1-[2-9][0-8]\d-555-01\d\d"), ("+44 20 7183 8750", r"\+44 (20 7946 0|1632 960|7700 900)\d{3}"),
        ("+49 30 901820", r"\+49 (30 23125|69 90009|40 66969|221 4710|89 99998)\d{3}"),
        ("+33 1 42 68 53 00", r"\+33 (1 99 00|2 61 91|3 53 01|4 65 71|5 36 49|6 39 98) \d\d \d\d"),
        ("+61 2 9876 5432", r"\+61 [2378] 5550 \d{4}"), ("+353 1 222 2222", r"\+353 20 91\d \d{4}"),
        ("+46 8 5792 9100", r"\+46 (31 390 06|40 628 04|8 465 004) \d\d"), ("+81 3 3477 0111", r"\+1-[2-9][0-8]\d-555-01\d\d"),
    ],
)  # fmt: skip
def test_a_telephone_becomes_one_that_its_country_keeps_for_fiction(number: str, form: str) -> None:
    made = pseudonym(KEY, "phone", number.encode(), ("US",)).decode()
    assert re.fullmatch(form, made)
    docs = documents([f"call {number} ext. 5 or {number}"])
    assert redact(docs, NAMES, KEY).kept["text"][0].as_py() == f"call {made} or {made}"


def test_national_spellings_are_one_number() -> None:
    us = pseudonym(KEY, "phone", b"(212) 736-3100", ("US", "GB"))
    assert (
        us == pseudonym(KEY, "phone", b"001 212 736 3100") == pseudonym(KEY, "phone", b"+1-212-736-3100 x7")
    )
    assert pseudonym(KEY, "phone", b"020 7946 0958", ("GB",)) == pseudonym(KEY, "phone", b"+44 20 7946 0958")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(NATIONAL)), st.integers(0, 10**11))
@example("gb_nhs", 0)
def test_a_national_number_keeps_its_form_and_is_nobodys(kind: Kind, number: int) -> None:
    made = pseudonym(KEY, kind, f"{number:011d}".encode()).decode()
    assert re.fullmatch(FORMS[kind], made)
    sentence = f"{SAID.get(kind, '')} {made}."
    params = RedactParams(kinds=sorted(NUMBERS), replacement="pseudonym")
    assert len(redact(documents([sentence, made]), params, KEY).decisions) == 0


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_check_digits_are_right_where_a_range_is_set_aside(kind: Kind) -> None:
    from importlib import import_module

    modules = {"br_cpf": False, "es_dni": False} | dict.fromkeys(
        ("de_idnr", "gb_nino", "in_aadhaar", "ca_sin", "se_pnr")
    )
    valid = modules.get(kind, True)
    made = pseudonym(KEY, kind, b"1").decode()
    if valid is not None:
        assert import_module(f"stdnum.{NUMBERS[kind].module}").is_valid(made) is valid
    elif kind == "in_aadhaar":
        from stdnum import verhoeff

        assert verhoeff.is_valid(made.replace(" ", ""))
    elif kind == "de_idnr":
        from stdnum.iso7064 import mod_11_10

        assert mod_11_10.is_valid(made.replace(" ", ""))
    elif kind in ("se_pnr", "ca_sin"):
        from stdnum import luhn

        assert luhn.is_valid(made.replace("-", "")[2 if kind == "se_pnr" else 0 :])
    else:
        assert made.startswith("QQ")  # the example that the tax office publishes


def test_the_key_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sixteen letters!")
    assert read_key("SOME_KEY") == b"sixteen letters!"
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(UserError, match="SOME_KEY is empty"):
        read_key("SOME_KEY")
