"""Telephone numbers, in groups of digits, by the numbering plans of the `phonenumbers` library.

International numbers (`+…`, `00…`, `(34) …`) anywhere; any number right behind a label of `phone_words`; national ones by the
plans of the regions that the user names, and only as people write them: grouped, or beside a word about telephones. Of regions that
the document's language, its script or the language of such a word make likely, a number must be assigned by its plan, and stand
beside such a word or in the groups that are usual there. Elsewhere a number that its plan calls possible but has not assigned counts
when its form leaves no doubt (a `+`, `(212) 555-…`, an extension).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from corpusmill.pipeline.redact import ALNUM, DIGITS, Hit, after, before, context, phone_words
from corpusmill.pipeline.redact.identifiers import label
from corpusmill.pipeline.redact.phone_labels import LETTER, Beside, is_behind, is_count, is_glued, is_other
from corpusmill.pipeline.redact.phone_plans import fits, nanp, plan, possible, usual_groups, valid


class Group(NamedTuple):
    """Digits without a separator, and the separator before them ('' for the first)."""

    digits: str
    start: int
    end: int
    separator: bytes


class Regions(NamedTuple):
    """Whose plans are tried: those that the user names, and those of the document's language."""

    named: Sequence[str]
    of_language: Sequence[str] = ()


_GROUP = re.compile(rb"[0-9]+")
_BLANKS = re.compile(rb"\xc2\xa0|\xe2\x80\xaf")
_DASHES = re.compile(rb"\xe2\x80[\x90-\x95]")

_EXTENSION = re.compile(
    rb"(?:,?[ \t]?\(?(?:"
    + phone_words.extensions()
    + rb")[.:]?[ \t]?|[ \t]?x[ \t]?)[0-9]{1,6}\)?(?![0-9A-Za-z])"
)
_SHORT = re.compile(rb"(?:[ ]?/[ ]?[0-9]{1,3}(?![0-9A-Za-z/.-]|[ ][0-9]))+")  # 91 123 45 67/68
_MAX_GROUPS = 7
_NANP_SHAPES = {(3, 3, 4), (1, 3, 3, 4), (3, 7), (1, 10)}
_ENDS = (b" ", b" (", b"(")


def phones(
    buffer: bytes, start: int, end: int, regions: Sequence[str], of_language: Sequence[str] = ()
) -> Iterator[Hit]:
    """Telephone numbers in groups of digits from `start` to `end`, with their sign, parenthesis and extension. `of_language`:
    the regions of the document's language."""
    segment = _Segment(buffer, _groups(buffer, start, end), Regions(regions, of_language))
    first, listed = 0, False
    while first < len(segment.groups):
        hit, first = segment.at(first, listed)
        listed = hit is not None
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


class _Segment(NamedTuple):
    buffer: bytes
    groups: list[Group]
    regions: Regions

    def at(self, first: int, listed: bool) -> tuple[Hit | None, int]:
        """The number that begins with this group, and the group to look at next. `listed`: right behind another number."""
        buffer, groups = self.buffer, self.groups
        if first > 0 and not _may_begin(groups[first].separator, listed):
            return None, first + 1
        total, beside, sizes = 0, None, []
        for last in range(first, min(first + _MAX_GROUPS, len(groups))):
            total += len(groups[last].digits)
            sizes.append(total)
            if total > 18:
                break
        if total < 7:
            return None, first + 1
        start, plus, paren = _opening(buffer, groups, first)
        if first == 0 and not _left_free(buffer, start, plus, _is_marked(groups[:2])):
            return None, first + 1
        for offset in range(len(sizes) - 1, -1, -1):
            last = first + offset
            if sizes[offset] < 7:
                break
            end, extension = _closing(buffer, groups, last, plus or _is_marked(groups[first : last + 1]))
            if end is None:
                continue
            if beside is None:
                beside = Beside.of(buffer, start)
            chosen = groups[first : last + 1]
            if self._is_phone(chosen, first, last, start, end, plus, paren, extension, beside, listed):
                short = _SHORT.match(after(buffer, end, 16)) if beside.labelled and not extension else None
                if short:
                    end += short.end()
                    while last + 1 < len(groups) and groups[last + 1].end <= end:
                        last += 1
                return Hit(start, end, "phone"), last + 1
        return None, first + 1

    def _is_phone(
        self, chosen: list[Group], first: int, last: int, start: int, end: int, plus: bool, paren: bool,
        extension: bool, beside: Beside, listed: bool,
    ) -> bool:  # fmt: skip
        groups, buffer = self.groups, self.buffer
        whole = last == len(groups) - 1 or groups[last + 1].separator == b"/"
        if not whole and groups[last + 1].separator not in _ENDS:
            return False
        size = sum(len(group.digits) for group in chosen)
        label = (first == 0 and beside.labelled) or (listed and first > 0 and groups[first].separator == b"/")
        ordinary = not _dated(chosen) and not _quad(chosen) and not _zeros(chosen)
        if label and len(chosen) == 1 and size < 10 and chosen[0].digits[0] != "0":
            label = not is_count(buffer, start)
        if size <= 15 and ordinary and whole:
            if label or (last == len(groups) - 1 and _behind(buffer, end, chosen)):
                return True
            if beside.far and first == 0 and size >= 8 and len(chosen) > 1 and not _thousands(chosen):
                return True
        if whole and last < len(groups) - 1 and beside.word is None and not plus:
            return False
        alone = first == 0 and last == len(groups) - 1
        return _by_plan(buffer, chosen, start, plus, paren, extension, beside.word, alone, self.regions)


def _behind(buffer: bytes, end: int, groups: list[Group]) -> bool:
    """Whether a label follows the number that ends at `end`, and its groups are as people write them."""
    if len(groups) > 5 or any(len(group.digits) < 2 for group in groups[1:]):
        return False
    return is_behind(after(buffer, end, 24))


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


def _may_begin(separator: bytes, listed: bool) -> bool:
    """Whether a number may begin behind this separator of groups."""
    return separator in _ENDS or (listed and separator == b"/")


def _is_marked(groups: list[Group]) -> bool:
    """Whether signs between the groups exclude a decimal number, so that a comma beside them parts fields of a row."""
    return any(b"-" in group.separator or b")" in group.separator for group in groups[1:])


def _left_free(buffer: bytes, start: int, plus: bool, marked: bool) -> bool:
    """Whether nothing before the first group makes it part of something else."""
    left = before(buffer, start, 2)
    if not left:
        return True
    if (
        left[-1] in ALNUM
        or left[-1] in b"_#$@%&/\\.-+*^~"
        or left.endswith((b"\xc2\xa3", b"\xc2\xa5", b"\xac"))
    ):
        if left[-1] == 46 and len(left) == 2 and left[0] not in DIGITS:  # "Tel.91 …": `labelled` decides
            return is_glued(buffer, start)
        return plus and left[-1] in b"/.-&*~"
    if plus and left[-1] in b")]":
        return False
    return not (len(left) == 2 and left[-1] in b",:" and left[0] in DIGITS) or (marked and left[-1:] == b",")


def _closing(buffer: bytes, groups: list[Group], last: int, marked: bool) -> tuple[int | None, bool]:
    """Where a number ends after this group, its extension included; None where more digits belong to it. `marked`: it is no
    decimal number."""
    end = groups[last].end
    if last < len(groups) - 1:
        return (end, False) if groups[last + 1].separator in (*_ENDS, b"/") else (None, False)
    right = after(buffer, end, 32)
    extension = _EXTENSION.match(right.lower())
    if extension:
        return end + extension.end(), True
    if right and (right[0] in ALNUM or right[0] in b"_%@&="):
        return None, False
    if right.startswith(b"-") and is_behind(right):
        return end, False
    if len(right) > 1 and right[0] in b".,-/:" and right[1] in (DIGITS if right[0] in b".," else ALNUM):
        return (end, False) if marked and right[0] == ord(",") else (None, False)
    return end, False


def _by_plan(
    buffer: bytes, groups: list[Group], start: int, plus: bool, paren: bool, extension: bool, word: bytes | None,
    alone: bool, regions: Regions,
) -> bool:  # fmt: skip
    """Whether a plan has the number, in a form that its surroundings make believable."""
    sure = extension or paren or word not in (None, LETTER)
    trunk = [
        group for group in groups if not (group.digits == "0" and b"(" in group.separator)
    ]  # +49 (0) 30 …
    digits = "".join(group.digits for group in trunk)
    separators = {group.separator for group in groups[1:]}
    if plus:
        return 8 <= len(digits) <= 15 and possible("+" + digits, None)
    if _dated(groups) or _quad(groups) or is_other(context(buffer, start, 24).lower()):
        return False
    bracketed = paren and len(groups) > 1 and b")" in groups[1].separator and len(groups[0].digits) <= 5
    if bracketed and (len(groups) > 3 or word is not None) and valid("+" + digits.removeprefix("00"), None):
        return True  # (34) 91 …
    inner = {group.separator for group in trunk[2 if trunk[0].digits == "1" else 1 :]}
    dialled = groups[0].digits.startswith("00") and len(groups[0].digits) <= 5 and len(digits) <= 17
    if any(b"(" in separator for separator in inner) and not (dialled or trunk[0].digits in ("0", "7", "8")):
        return False  # "606.345 (2024)": only an area's code stands in parentheses
    if not alone and separators <= {b" "} and not sure:  # three numbers of a table's row
        return False
    if digits == "00" + digits[2:] and trunk[0].digits == "00" and len(trunk) > 3:  # 00 49 30 …
        return valid("+" + digits[2:], None)
    if dialled and (len(groups) > 2 or word is not None):
        return (possible if sure or separators == {b"-"} else valid)("+" + digits[2:], None)
    for region in regions.named:
        if not _shaped(groups, digits, separators, region, sure, word is not None):
            continue
        certain = sure or (nanp(region) and separators in ({b"-"}, {b"."}))
        if (possible if certain else valid)(digits, region):
            return True
    return _inferred(buffer, groups, digits, start, paren, word, alone, regions)


def _inferred(
    buffer: bytes, groups: list[Group], digits: str, start: int, paren: bool, word: bytes | None, alone: bool,
    regions: Regions,
) -> bool:  # fmt: skip
    """Whether a region that language or script make likely has assigned the number."""
    likely = dict.fromkeys(regions.of_language)
    if word is not None:
        likely |= dict.fromkeys(phone_words.regions_of_word(word))
    if not likely:
        left, right = before(buffer, start, 24), after(buffer, groups[-1].end, 24)
        if left.isascii() and right.isascii():
            return False
        likely |= dict.fromkeys(
            phone_words.regions_of_script(left) or phone_words.regions_of_script(right[::-1])
        )
    if not likely or _zeros(groups) or (_thousands(groups) and (word is None or len(digits) < 9)):
        return False
    if word is None and not (alone and (len(groups) > 2 or paren)):
        return False
    if word is not None and label(context(buffer, start, 72).decode("utf-8", "ignore"))[0] is not None:
        return False  # an identifier's, and the word about telephones is of another line or clause
    if len(groups) == 1 and digits[0] != "0":
        other_line = word != LETTER and b"\n" in before(buffer, start, 24)
        if len(digits) < 9 or other_line or is_count(buffer, start):
            return False
    shape = tuple(len(group.digits) for group in groups)
    opened = after(buffer, groups[-1].end, 2) == b" (" and groups[0].separator == b""
    for region in likely:
        if region not in regions.named and fits(digits, region) and valid(digits, region):
            usual = shape == usual_groups(digits, region) or (len(shape) > 3 and min(shape) > 1)
            if usual or ((alone or opened) and (word is not None or paren)):
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


def _zeros(groups: list[Group]) -> bool:
    """A round number: 5 000 000."""
    return all(group.digits == "000" for group in groups[2:] or [groups[0]])


def _thousands(groups: list[Group]) -> bool:
    """Groups of three behind a first of at most three: a count, an amount."""
    separators = {group.separator for group in groups[1:]}
    return (
        len(groups[0].digits) <= 3
        and all(len(group.digits) == 3 for group in groups[1:])
        and separators <= {b" ", b"."}
    )
