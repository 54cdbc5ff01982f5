"""The pass over the bytes passes over no identifier and no masked telephone that the detectors would find."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.redact.batch import iban_lengths, wanted
from corpusmill.pipeline.redact.identifier_labels import KINDS, LABELS
from corpusmill.pipeline.redact.identifiers import identifiers
from corpusmill.pipeline.redact.kernels import LABELLED, MASKED
from corpusmill.pipeline.redact.kernels.candidates import candidates
from corpusmill.pipeline.redact.masked_phones import masked_phones
from corpusmill.pipeline.redact.phone_plans import plans

KIND_SET = frozenset(KINDS)
LABEL = st.sampled_from(sorted(LABELS)).map(" ".join)
PIECES = st.sampled_from(
    ["order ", "Order #", "case no. ", "NHC: ", "patient ", "ID ", "is ", "nº ", "Nº", "número de ", "MRN-", "(", "): ", ": ", " ", "\n", ".", "-", "/",
     "12345", "2019", "A-", "28 28 ", "778899", "PT", "号", "：", "é", "_", '"', "x", "de ", "Sécurité sociale ", "订单号", "N.H.C. ", "=", "\x00"]
)  # fmt: skip


def fast(data: bytes, kind: int) -> list[tuple[int, int]]:
    kinds = frozenset(KINDS) if kind == LABELLED else frozenset({"masked_phone"})
    table = candidates(np.frombuffer(data, np.uint8), wanted(kinds), plans(()), iban_lengths())
    return [(start, end) for found, start, end in table.tolist() if found == kind]


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES | LABEL, max_size=9).map("".join))
@example("Order number 12345")
@example("aadhaarOrder #12345")
@example("theCaseNumber: 12345")
@example("Nº de expediente 2019/334")
@example("N° de sécurité sociale : 2 85 05 78 006 084 36")
def test_no_identifier_is_passed_over(text: str) -> None:
    data = text.encode() + b"\x00"
    slow = {
        hit for word in re.finditer(rb"[0-9]+", data) for hit in identifiers(data, word.start(), KIND_SET)
    }
    found = {hit for start, _ in fast(data, LABELLED) for hit in identifiers(data, start, KIND_SET)}
    assert found == slow


@settings(max_examples=200, deadline=None)
@given(st.text("0123456789*xX#-. ()+ea", max_size=30), st.sampled_from(["", "phone ", "tel. "]))
@example("138****5678", "")
def test_no_masked_telephone_is_passed_over(text: str, lead: str) -> None:
    data = (lead + text).encode() + b"\x00"
    slow = {hit for run in re.finditer(rb"[0-9]+", data) for hit in masked_phones(data, *run.span())}
    assert {hit for run in fast(data, MASKED) for hit in masked_phones(data, *run)} >= {
        hit
        for hit in slow
        if b"**" in data[hit.start : hit.end] or b"XX" in data[hit.start : hit.end].upper()
    }
