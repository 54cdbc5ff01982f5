"""Telephone numbers with hidden digits, and what else stands behind asterisks."""

from __future__ import annotations

import pytest

from corpusmill.pipeline.redact.batch import Look, find
from corpusmill.schemas.stages import DEFAULT_KINDS


def found(text: str) -> list[tuple[str, str]]:
    data = text.encode() + b"\x00"
    return [
        (hit.kind, data[hit.start : hit.end].decode()) for hit in find(data, Look(DEFAULT_KINDS, ("US",)))
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("联系 138****5678。", "138****5678"), ("ends +34 6** *** *12 now", "+34 6** *** *12"), ("reset via ***-***-1234?", "***-***-1234"),
        ("(***) ***-1234", "(***) ***-1234"), ("phone: XXX-XXX-1234", "XXX-XXX-1234"), ("fax 555-***-1234", "555-***-1234"),
        ("móvil 6••••••12", "6••••••12"), ("tel 1-***-***-1234", "1-***-***-1234"),
    ],
)  # fmt: skip
def test_found(text: str, value: str) -> None:
    assert found(text) == [("masked_phone", value)]


@pytest.mark.parametrize(
    "text",
    [
        "card **** **** **** 1234", "***-**-1234", "XXX-XX-1234", "XXX-XXX-1234", "**Bold** 12 **34**", "2 ** 10 ** 3", "a***1234567",
        "chapter xxx 1234567", "0xxxxx1234", "*** 2019 ***", "/****/12345", "#### 1234567",
    ],
)  # fmt: skip
def test_left_alone(text: str) -> None:
    assert found(text) == []
