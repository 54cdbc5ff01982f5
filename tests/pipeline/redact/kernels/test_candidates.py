"""The pass over the bytes misses nothing that the detectors would find: against slow readings of the same rules."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.redact import Kind
from corpusmill.pipeline.redact.batch import Look, find, iban_lengths, wanted
from corpusmill.pipeline.redact.identity_numbers import iban_length
from corpusmill.pipeline.redact.kernels import CARD, CARD_TABLE, IBAN, IP4, PHONE
from corpusmill.pipeline.redact.kernels.around import PREFIXES
from corpusmill.pipeline.redact.kernels.candidates import MAX_GROUPS, candidates
from corpusmill.pipeline.redact.phone_plans import plans
from corpusmill.pipeline.redact.phones import phones
from corpusmill.schemas.stages import DEFAULT_KINDS

REGIONS = ("US", "GB")
SEPARATOR = rb"(?:[ .\-/()\t]|\xc2\xa0|\xe2\x80[\x90-\x95\xaf])"
RUN = re.compile(rb"[0-9](?:" + SEPARATOR + rb"{0,3}[0-9])*")
GROUP = re.compile(rb"[0-9]+")
WEAK = frozenset((b" ", b"-", b".", b"/", b") ", b")-", b")", b" (", b"(", b"-(", b".("))


def segments(buffer: bytes) -> list[list[re.Match[bytes]]]:
    """Groups of digits with ordinary separators between them, read with regular expressions."""
    result = []
    for run in RUN.finditer(buffer):
        groups = [next(GROUP.finditer(buffer, run.start(), run.end()))]
        for group in list(GROUP.finditer(buffer, run.start(), run.end()))[1:]:
            between = buffer[groups[-1].end() : group.start()]
            between = re.sub(rb"\xe2\x80[\x90-\x95]", b"-", re.sub(rb"\xc2\xa0|\xe2\x80\xaf", b" ", between))
            if between not in WEAK:
                result.append(groups)
                groups = []
            groups.append(group)
        result.append(groups)
    return result


def look(buffer: bytes, kinds: list[Kind]) -> list[tuple[int, int, int]]:
    table = candidates(
        np.frombuffer(buffer, np.uint8), wanted(frozenset(kinds)), plans(REGIONS), iban_lengths()
    )
    return [(int(kind), int(start), int(end)) for kind, start, end in table]


PIECES = st.sampled_from(
    ["212", "555", "0123", "7946", "020", "+44", "+1", "00", "1", "(212)", " ", "-", ".", "/", ") ", "  ", "\u00a0", "\u2011",
     "\n", "x", "phone ", "tel. ", "call ", "Fax: ", " fax", "-Office\n", "message to ", "☎", "ssn ", "2014-03-05", "4111",
     "1111", "8.8.8.8", "ext. 5", "é", "\x00", ",", "answering at "]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
@example("phone\n212 555 0123")
@example("x 020 7946 0958 212-555-0123 ")
def test_no_telephone_is_passed_over(text: str) -> None:
    data = text.encode() + b"\x00"
    slow = set()
    for groups in segments(data):
        start, end = groups[0].start(), groups[-1].end()
        digits = sum(len(group.group()) for group in groups)
        run = next(m for m in RUN.finditer(data) if m.start() <= start < m.end())
        signed = b"+" in data[max(0, run.start() - 2) : run.start()]
        table = len(run.group()) >= 48 and b"(" not in run.group() and b"-" not in run.group() and not signed
        if digits >= 7 and (not table or data[max(0, start - 2) : start].find(b"+") >= 0):
            slow |= {(hit.start, hit.end) for hit in phones(data, start, end, REGIONS)}
    fast = set()
    for kind, start, end in look(data, ["phone"]):
        assert kind == PHONE
        fast |= {(hit.start, hit.end) for hit in phones(data, start, end, REGIONS)}
    assert fast == slow


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(st.text("0123456789", min_size=1, max_size=4), st.sampled_from([".", ".", ". ", "-", "x"])),
        max_size=12,
    )
)
def test_every_quad_is_seen(pieces: list[str]) -> None:
    data = "".join(pieces).encode() + b"\x00"
    slow = set()
    for groups in segments(data):
        for i in range(len(groups) - 3):
            four = groups[i : i + 4]
            inner = [data[a.end() : b.start()] for a, b in itertools.pairwise(four)]
            left = i > 0 and data[groups[i - 1].end() : four[0].start()] == b"."
            right = i + 4 < len(groups) and data[four[3].end() : groups[i + 4].start()] == b"."
            if inner == [b"."] * 3 and all(len(g.group()) <= 3 for g in four) and not left and not right:
                slow.add((four[0].start(), four[3].end()))
    assert {(start, end) for kind, start, end in look(data, ["ip"]) if kind == IP4} == slow


# Among other bytes, what the pass stops at: without it, almost no example has a candidate.
FOUND = [
    b"ann@site.org",
    b" 8.8.8.8 ",
    b"+1 212 736 3100",
    b"4111 1111 1111 1111",
    b"GB82WEST12345698765432",
    b"a://b:c1234567@",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.sampled_from(FOUND), max_size=8).map(b"".join))
@example(b"\xe2\x80")
@example(b"1\xe2\x80\x951\xc2")
@example(b"GB8")
@example(b"a://")
@example(b"-----BEGIN ")
def test_any_bytes_give_places_inside_them(data: bytes) -> None:
    for _, start, end in look(data, list(DEFAULT_KINDS)):
        assert 0 <= start <= end <= len(data)


@pytest.mark.parametrize("piece", FOUND)
def test_a_known_piece_has_a_place(piece: bytes) -> None:
    assert look(b"x " + piece + b" ", list(DEFAULT_KINDS))


def test_more_candidates_than_expected() -> None:
    data = b"8.8.8.8\n" * 5000
    assert look(data, ["ip"]) == [(IP4, 8 * i, 8 * i + 7) for i in range(5000)]


@pytest.mark.parametrize("before", range(MAX_GROUPS - 18, MAX_GROUPS + 3))
def test_a_card_across_the_pieces_of_a_long_run_is_seen_whole(before: int) -> None:
    data = b"1 " * before + b"4111 1111 1111 1111" + b" 1" * 40 + b"\x00"
    places = {(start, end) for kind, start, end in look(data, ["card"]) if kind in (CARD, CARD_TABLE)}
    assert (2 * before, 2 * before + 19) in places


@pytest.mark.parametrize("prefix", PREFIXES)
def test_known_prefixes_are_seen_at_the_start_of_words(prefix: bytes) -> None:
    assert (0, len(prefix)) in {(start, end) for _, start, end in look(prefix + b"abc", ["secret"])}
    assert (0 + 1, len(prefix) + 1) not in {(s, e) for _, s, e in look(b"x" + prefix + b"abc", ["secret"])}


def test_ibans_are_those_of_the_registry() -> None:
    from stdnum import iban

    countries = [a + b for a in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" for b in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    for country in countries:
        size = iban_length(country)
        body = "1234567890" * 4
        made = f"{country}{iban.calc_check_digits(country + '00' + body[: (size or 20) - 4])}{body[: (size or 20) - 4]}"
        seen = [e - s for kind, s, e in look(made.encode() + b"\x00", ["iban"]) if kind == IBAN]
        assert seen == ([size] if size else []), country


def test_text_without_anchors_costs_no_candidates() -> None:
    prose = ("It was the best of times, it was the worst of times. " * 50).encode() + b"\x00"
    assert look(prose, list(DEFAULT_KINDS)) == []
    assert find(prose, Look(DEFAULT_KINDS, REGIONS)) == []
