"""Telephone numbers, in groups of digits, by the numbering plans of the `phonenumbers` library.

International numbers (`+…`, `00…`) anywhere; national ones by the plans of the regions that the user names,
and only as people write them: grouped, or beside a word such as "phone". A number that its plan calls
possible but has not assigned counts when its form leaves no doubt (a `+`, `(212) 555-…`, an extension).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.redact import ALNUM, DIGITS, Hit, after, before, context


@lru_cache(maxsize=256)
def plan(region: str) -> tuple[tuple[int, ...], str]:
    """Lengths of a region's national numbers, and the prefix that is dialled before them."""
    import phonenumbers

    data = phonenumbers.PhoneMetadata.metadata_for_region(region)
    if data is None:
        return (), ""
    lengths = data.general_desc.possible_length if data.general_desc else ()
    return tuple(lengths), data.national_prefix or ""


def plans(regions: Sequence[str]) -> npt.NDArray[np.int64]:
    """The regions' plans as `kernels.candidates.run` takes them: a row that is 1 if the North American plan is one of
    them, then per region the first digit of its national prefix (-1: none), the prefix's length, a bit per length."""
    rows = [(int(any(nanp(region) for region in regions)), 0, 0)]
    for region in regions:
        sizes, prefix = plan(region)
        bits = sum(1 << size for size in sizes)
        rows.append((int(prefix[0]) if prefix else -1, len(prefix), bits))
    return np.array(rows, dtype=np.int64)


@lru_cache(maxsize=256)
def nanp(region: str) -> bool:
    """Whether the region is of the North American plan."""
    import phonenumbers

    return bool(phonenumbers.country_code_for_region(region) == 1)


def known_region(region: str) -> bool:
    """Whether `phonenumbers` has a plan for the region (ISO 3166, upper case)."""
    import phonenumbers

    return region in phonenumbers.SUPPORTED_REGIONS


@lru_cache(maxsize=4096)
def possible(number: str, region: str | None) -> bool:
    """Whether a number has a length that its plan knows."""
    import phonenumbers

    try:
        parsed = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return False
    return bool(
        phonenumbers.is_possible_number_with_reason(parsed) == phonenumbers.ValidationResult.IS_POSSIBLE
    )


@lru_cache(maxsize=4096)
def valid(number: str, region: str | None) -> bool:
    """Whether a number is in a range that its plan has assigned."""
    import phonenumbers

    try:
        return bool(phonenumbers.is_valid_number(phonenumbers.parse(number, region)))
    except phonenumbers.NumberParseException:
        return False


class Group(NamedTuple):
    """Digits without a separator, and the separator before them ('' for the first)."""

    digits: str
    start: int
    end: int
    separator: bytes


_GROUP = re.compile(rb"[0-9]+")
_BLANKS = re.compile(rb"\xc2\xa0|\xe2\x80\xaf")
_DASHES = re.compile(rb"\xe2\x80[\x90-\x95]")

# `kernels.digit_groups.HINTS` knows three letters of each word here, and passes nothing without one.
_CONTEXT = re.compile(
    rb"(?i)phone|\btel\b|\btel[.:]|\bfax|\bcall|mobile|\bcell|contact|whatsapp|\bsms\b|\btext\b|hotline|\bdial|\bph[.:]"
    rb"|\breach\b|\bring\b|\xe2\x98\x8e|\xf0\x9f\x93\x9e|\xe2\x9c\x86"
)
# A label or request right before it: then any grouping will do, of any country's plan or none.
_LABEL = re.compile(
    rb"(?i)(?:(?:phone|telephone|\btel|fax|mobile|cell|whatsapp|hotline)"
    rb"(?: (?:no\.?|number|nr\.?|#))?(?: is)?\.?[ \t]?[:=]?"
    rb"|\b(?:call|reach|text|ring|dial)(?: me| us| him| her| them)?(?: on| at)?:?"
    rb"|\b(?:answer(?:ing|s|ed)? (?:on|at)|messages? to))\s{0,3}$"
)
# A label right behind it: "… fax", "…-Office". Rooms and years have offices too, so the label must end something.
_BEHIND = re.compile(
    rb"(?i)[ \t]?[-,(]?[ \t]?(?:fax|mobile|cell|phone|(?:office|work|home)(?=[\s,;.)\\]*(?:$|[\r\n,;)\\])))"
    rb"(?![a-z0-9])"
)
_OTHER = re.compile(
    rb"(?i)isbn|issn|\bdoi\b|oclc|pmid|lccn|arxiv|\bssn\b|invoice|\border\b|\bcase\b|ticket|version|section|\bserial"
    rb"|\bpatent|\bpp?\.|\bpages?\b|\bisin\b|\bean\b|\bupc\b|\biban\b|\baccount\b"
)
_EXTENSION = re.compile(rb"[ \t]?(?:x|ext\.?|extension)[ \t]?[0-9]{1,6}(?![0-9A-Za-z])", re.IGNORECASE)
_MAX_GROUPS = 7
_NANP_SHAPES = {(3, 3, 4), (1, 3, 3, 4), (3, 7), (1, 10)}


def phones(buffer: bytes, start: int, end: int, regions: Sequence[str]) -> Iterator[Hit]:
    """Telephone numbers in groups of digits from `start` to `end`, with their `+`, parenthesis and extension."""
    groups, first = _groups(buffer, start, end), 0
    while first < len(groups):
        hit, first = _at(buffer, groups, first, regions)
        if hit:
            yield hit


def _groups(buffer: bytes, start: int, end: int) -> list[Group]:
    groups: list[Group] = []
    for match in _GROUP.finditer(buffer, start, end):
        separator = buffer[groups[-1].end : match.start()] if groups else b""
        if len(separator) > 1:
            separator = _DASHES.sub(b"-", _BLANKS.sub(b" ", separator))
        groups.append(Group(match.group().decode(), match.start(), match.end(), separator))
    return groups


def _at(buffer: bytes, groups: list[Group], first: int, regions: Sequence[str]) -> tuple[Hit | None, int]:
    """The number that begins with this group, and the group to go on with."""
    start, plus, paren = _opening(buffer, groups, first)
    if not _left_free(buffer, groups, first, start, plus):
        return None, first + 1
    total, left = 0, b""
    has_context: bool | None = None  # whether a word about telephones stands before it
    sizes = []
    for last in range(first, min(first + _MAX_GROUPS, len(groups))):
        total += len(groups[last].digits)
        sizes.append(total)
        if total > 17:
            break
    for offset in range(len(sizes) - 1, -1, -1):
        last = first + offset
        if sizes[offset] < 7:
            break
        end, extension = _closing(buffer, groups, last)
        if end is None:
            continue
        chosen = groups[first : last + 1]
        alone = first == 0 and last == len(groups) - 1
        if has_context is None:
            left = context(buffer, start, 40)
            has_context = _CONTEXT.search(left) is not None
        sure = extension or paren or has_context
        labelled = sizes[offset] <= 15 and (
            (alone and _LABEL.search(left) is not None)
            or (last == len(groups) - 1 and _behind(buffer, end, chosen))
        )
        labelled = (
            labelled
            and not _dated(chosen)
            and not _quad(chosen)
            and not all(group.digits == "000" for group in chosen[2:] or [chosen[0]])
        )
        if labelled or _is_phone(buffer, chosen, start, plus, sure, has_context, alone, regions):
            return Hit(start, end, "phone"), last + 1
    return None, first + 1


def _behind(buffer: bytes, end: int, groups: list[Group]) -> bool:
    """Whether a label follows the number that ends at `end`, and its groups are as people write them."""
    if len(groups) > 5 or any(len(group.digits) < 2 for group in groups[1:]):
        return False
    return _BEHIND.match(after(buffer, end, 24)) is not None


def _opening(buffer: bytes, groups: list[Group], first: int) -> tuple[int, bool, bool]:
    """Where the number starts with its sign and parenthesis; whether it has them."""
    start = groups[first].start
    sign = before(buffer, start, 2)
    plus = paren = False
    if sign.endswith(b"("):
        start, paren, sign = start - 1, True, sign[:-1]
    if sign.endswith(b"+"):
        start, plus, sign = start - 1, True, sign[:-1]
        if sign.endswith(b"("):
            start, paren = start - 1, True
    return start, plus, paren


def _left_free(buffer: bytes, groups: list[Group], first: int, start: int, plus: bool) -> bool:
    if first > 0:
        return groups[first].separator in (b" ", b" (")
    left = before(buffer, start, 2)
    if not left:
        return True
    if (
        left[-1] in ALNUM
        or left[-1] in b"_#$@%&/\\.-+*^~"
        or left.endswith((b"\xc2\xa3", b"\xc2\xa5", b"\xac"))
    ):
        return plus and left[-1] in b"/.-&*~"
    if plus and left[-1] in b")]":
        return False
    return not (len(left) == 2 and left[-1] in b",:" and left[0] in DIGITS)


def _closing(buffer: bytes, groups: list[Group], last: int) -> tuple[int | None, bool]:
    """Where a number ends after this group, its extension included; None where more digits belong to it."""
    end = groups[last].end
    if last < len(groups) - 1:
        return (end, False) if groups[last + 1].separator in (b" ", b" (") else (None, False)
    right = after(buffer, end, 24)
    extension = _EXTENSION.match(right)
    if extension:
        return end + extension.end(), True
    if right and (right[0] in ALNUM or right[0] in b"_%@&="):
        return None, False
    if right.startswith(b"-") and _BEHIND.match(right):
        return end, False
    if len(right) > 1 and right[0] in b".,-/:" and right[1] in (DIGITS if right[0] in b".," else ALNUM):
        return None, False
    return end, False


def _is_phone(
    buffer: bytes, groups: list[Group], start: int, plus: bool, sure: bool, has_context: bool, alone: bool,
    regions: Sequence[str],
) -> bool:  # fmt: skip
    digits = "".join(group.digits for group in groups)
    separators = {group.separator for group in groups[1:]}
    if plus:
        return 8 <= len(digits) <= 15 and possible("+" + digits, None)
    if _dated(groups) or _quad(groups) or _OTHER.search(context(buffer, start, 24)):
        return False
    inner = {group.separator for group in groups[2 if groups[0].digits == "1" else 1 :]}
    if any(b"(" in separator for separator in inner):
        return False  # "606.345 (2024)": only an area's code stands in parentheses
    if not alone and separators <= {b" "} and not sure:  # three numbers of a table's row
        return False
    dialled = groups[0].digits.startswith("00") and len(groups[0].digits) <= 5 and len(digits) <= 17
    if dialled and (len(groups) > 2 or has_context):
        return (possible if sure or separators == {b"-"} else valid)("+" + digits[2:], None)
    for region in regions:
        if not _shaped(groups, digits, separators, region, sure, has_context):
            continue
        certain = sure or (nanp(region) and separators in ({b"-"}, {b"."}))
        if (possible if certain else valid)(digits, region):
            return True
    return False


def _shaped(
    groups: list[Group], digits: str, separators: set[bytes], region: str, sure: bool, has_context: bool
) -> bool:  # fmt: skip
    """Whether people of the region write a number in such groups."""
    sizes, prefix = plan(region)
    shape = tuple(len(group.digits) for group in groups)
    if len(groups) == 1 and not has_context:
        return False
    if nanp(region):
        return (shape in _NANP_SHAPES or len(groups) == 1) and len(digits) - digits.startswith("1") == 10
    if prefix and not digits.startswith(prefix):
        return False
    if len(digits) - len(prefix) not in sizes:
        return False
    if any(size < 2 for size in shape):
        return False
    return not (b"." in separators and len(groups) < 3) and not (
        len(groups) == 2 and separators == {b"/"} and not sure
    )


def _dated(groups: list[Group]) -> bool:
    """Whether three of the groups look like a date or two like a span of years."""
    shapes = [len(group.digits) for group in groups]
    if len(shapes) > 3 and set(shapes) == {2}:  # 01.84.17.61.18, 60-56-85-91: four pairs or more are no date
        return False
    for index in range(len(groups) - 2):
        same = groups[index + 1].separator == groups[index + 2].separator != b" "
        if same and tuple(shapes[index : index + 3]) in (
            (4, 2, 2),
            (2, 2, 4),
            (2, 2, 2),
            (1, 2, 4),
            (2, 1, 4),
            (4, 1, 2),
        ):
            return True
    return len(groups) == 2 and shapes == [4, 4] and groups[1].separator in (b"-", b"/")


def _quad(groups: list[Group]) -> bool:
    """Four octets with points between them: an IPv4 address, if a private one."""
    return (
        len(groups) == 4
        and all(group.separator == b"." for group in groups[1:])
        and all(int(group.digits) < 256 for group in groups)
    )
