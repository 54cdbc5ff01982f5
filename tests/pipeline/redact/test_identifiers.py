"""Identifiers by their labels: found with the kind that the label names, left alone where a label stands before something else."""

from __future__ import annotations

import re

import pytest

from corpusmill.pipeline.redact.apply import redact
from corpusmill.pipeline.redact.batch import Look, find
from corpusmill.pipeline.redact.identifier_labels import KINDS, LABELS, fold
from corpusmill.pipeline.redact.identifiers import check, is_nass, is_npi, is_rvnr
from corpusmill.schemas.stages import DEFAULT_KINDS, RedactParams
from tests.pipeline.corpus import documents


def found(text: str) -> list[tuple[str, str]]:
    data = text.encode() + b"\x00"
    return [
        (hit.kind, data[hit.start : hit.end].decode())
        for hit in find(data, Look(DEFAULT_KINDS, ("US", "GB")))
    ]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        # Spanish clinical records
        ("NASS: 28 12345678 40", "social_security", "28 12345678 40"), ("NHC: 1234567", "patient_id", "1234567"),
        ("N.H.C.: 1234567", "patient_id", "1234567"), ("NHC 1234567, ingresado", "patient_id", "1234567"),
        ("Nº Historia Clínica: 5678912", "patient_id", "5678912"), ("CIPA: nhc-1234567", "patient_id", "nhc-1234567"),
        ("Médico: Ana Luna NºCol: 28 28 35489", "license_id", "28 28 35489"), ("Nº Colegiado: 28/28/12345", "license_id", "28/28/12345"),
        ("Número de la Seguridad Social: 281234567840", "social_security", "281234567840"), ("DNI: 12345678A", "national_id", "12345678A"),
        ("DNI: 12345678Z", "es_dni", "12345678Z"), ("Expediente: A-2019/334", "case_id", "A-2019/334"), ("Nº de expediente 2019/334", "case_id", "2019/334"),
        # English
        ("order #12345", "order_id", "12345"), ("Your order number is 112-3456789-0123456.", "order_id", "112-3456789-0123456"),
        ("order ORD-20331", "order_id", "ORD-20331"), ("Case No. 1:20-cv-01234", "case_id", "1:20-cv-01234"), ("Patient ID: PT-10023", "patient_id", "PT-10023"),
        ("patient MRN 12345678 admitted", "patient_id", "12345678"), ("Medical Record Number (MRN): 00123456", "patient_id", "00123456"),
        ("seen as MRN-293104 there", "patient_id", "MRN-293104"), ("patient with ID MED25315002", "patient_id", "MED25315002"),
        ("patient Ann Lee, ID 4711023", "patient_id", "4711023"), ('{"order_id": "A12345"}', "order_id", "A12345"), ("orderId=998877", "order_id", "998877"),
        ("SSN: 923-45-6789", "social_security", "923-45-6789"), ("passport number XG9382049", "passport", "XG9382049"),
        ("driver's license Y820-9283-4432", "driver_license", "Y820-9283-4432"), ("Tax ID 94-2841935", "tax_id", "94-2841935"),
        ("Bank account 8721938475", "account_id", "8721938475"), ("Employee ID EMP7392", "employee_id", "EMP7392"), ("ticket INC0012345", "case_id", "INC0012345"),
        ("NPI 1234567893", "license_id", "1234567893"), ("NHS/Hospital no: PT-71519", "patient_id", "PT-71519"),
        ("GMC licence 384712", "license_id", "384712"), ("N.º SS: 231660383675", "social_security", "231660383675"),
        # others
        ("Bestellnummer: 123 456 789", "order_id", "123 456 789"), ("Aktenzeichen: 12 O 345/19", "case_id", "12 O 345/19"),
        ("N° dossier : 2023-AB-1234", "case_id", "2023-AB-1234"), ("Sécurité sociale : 2 85 05 78 006 084 36", "social_security", "2 85 05 78 006 084 36"),
        ("номер заказа: 12345-67", "order_id", "12345-67"), ("订单号：202301150001", "order_id", "202301150001"), ("患者病历号：0012345", "patient_id", "0012345"),
        ("رقم الطلب: 123456", "order_id", "123456"), ("ऑर्डर संख्या: 123456", "order_id", "123456"),
    ],
)  # fmt: skip
def test_found(text: str, kind: str, value: str) -> None:
    assert found(text) == [(kind, value)]
    assert found(f"x\n{text}\ny") == [(kind, value)]


@pytest.mark.parametrize(
    "text",
    [
        "order 66", "order 12345 units", "Account: 12/05/2020", "Invoice: 1,234.50", "Case: 2019", "case no. 2019", "Case 1234 people", "Patient: 45 years",
        "Claim number: 12345 days", "VAT: 20%", "number 12345 is", "RFC 2119", "RFC: 2119", "CIP-1852", "file self2014.sqlar", "ticket de7db14784a08053",
        "https://x.org/case/123456", "https://x.org/?order=123456", "doi 10.1016/j.case.2009.01.003", "The order was long. 123456", "order\n123456",
        "policy, M-15-13", "account (1234)", "staff 36328576 Sep", "Main PID: 1188", "in order of 123456", "registration-12028636977",
    ],
)  # fmt: skip
def test_left_alone(text: str) -> None:
    assert [kind for kind, _ in found(text) if kind in KINDS] == []


def test_a_wrong_check_digit_excludes_what_a_plain_label_names_alone() -> None:
    assert (
        check("license_id", "1234567893") == 1
        and check("license_id", "1234567890") == -1
        and check("order_id", "12345") is None
    )
    assert found("NPI: 1234567890") == [
        ("license_id", "1234567890")
    ]  # explicit: a typing error is personal data, too
    assert found("license 1234567890") == []
    assert found("license 1234567893") == [("license_id", "1234567893")]


def test_check_digits() -> None:
    # 97 by hand: 2812345678 % 97 = 40, and of a number below ten millions without the zero: 281234567 % 97 = 42.
    assert (
        is_nass("281234567840")
        and not is_nass("281234567841")
        and is_nass("280123456742")
        and not is_nass("2812")
    )
    assert is_npi("1234567893") and not is_npi("1234567894")  # the example of the standard
    assert is_rvnr("15070649C103") and not is_rvnr("15070649C104")  # the example of the pension insurance


def test_every_kind_can_be_left_out() -> None:
    text = "NHC: 1234567; order #12345; case no. 778899"
    for kind in ("patient_id", "order_id", "case_id"):
        kinds = [other for other in DEFAULT_KINDS if other != kind]
        data = text.encode() + b"\x00"
        assert (
            kind not in {hit.kind for hit in find(data, Look(kinds, ()))}
            and len(find(data, Look(kinds, ()))) == 2
        )


def test_labels_are_folded() -> None:
    assert fold("Nº Historia Clínica: ") == ("no", "historia", "clinica") and fold("orderId #") == (
        "order",
        "id",
        "#",
    )
    assert all(1 <= len(label) <= 5 for label in LABELS) and len(LABELS) > 1000


def test_tags_and_pseudonyms_are_settled() -> None:
    docs = documents(["NASS: 28 12345678 40, order #12345 and order no. 12345; tel 138****5678"])
    for params in (RedactParams(), RedactParams(replacement="pseudonym")):
        once = redact(docs, params, b"a key for these tests only")
        text = once.kept["text"][0].as_py()
        assert "12345" not in text and "5678" not in text
        assert len(redact(once.kept, params, b"a key for these tests only").decisions) == 0
    made = re.findall("id-[0-9a-f]{16}", text)
    assert len(made) == 3 and made[1] == made[2] != made[0]  # the same order, the same stand-in
