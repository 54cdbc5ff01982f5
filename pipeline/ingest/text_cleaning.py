"""Text out of bytes, clean text out of text: encodings found and mended, controls out, newlines alike."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Line ends of any system, and the controls that a text may not hold (tab and newline stay).
_LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")
_DIRTY = "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x{9f}\\x{feff}\\x{2028}\\x{2029}]"  # RE2: either of the two
_PUNCTUATION = frozenset("‘’‚“”„†‡•…‰‹›«»–—€£¥§©®°·´¿¡½¼¾²³ºª×÷\xa0\xad")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Decoded(NamedTuple):
    """`repaired` names what had to be mended (the encoding found in place of the one expected), or None."""

    text: str
    repaired: str | None = None


class Undecodable(ValueError):
    """No encoding fits. `position` is the first byte that is not UTF-8; `reason` holds no content."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position, self.reason = position, reason


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """`data` as text: by its BOM, as UTF-8, as `declared`, else in the encoding that uchardet detects, if
    that gives plausible text. Raises `Undecodable`.

    UTF-8 goes before a declaration of another encoding: text in one that happens to be valid UTF-8 is rare,
    and a wrong declaration is not.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                return _checked(data[len(bom) :].decode(encoding), None, 0)
            except UnicodeDecodeError:
                break
    declared = codec_name(declared)
    if declared and not declared.startswith(("utf-8", "ascii", "cp1252")):
        try:
            as_declared = data.decode(declared)
        except UnicodeError:
            pass
        else:
            if declared.startswith(("utf", "iso2022", "hz")):
                return _checked(as_declared, None, 0)
            try:
                return Decoded(data.decode("utf-8"), None if data.isascii() else "utf-8")
            except UnicodeDecodeError:
                return _checked(as_declared, None, 0)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return _detected(data, error.start, declared)
    repaired = "utf-8" if declared not in (None, "utf-8") and not text.isascii() else None
    return _checked(text, repaired, 0)


def _detected(data: bytes, position: int, declared: str | None) -> Decoded:
    from resiliparse.parse.encoding import detect_encoding

    lossy = data.decode("utf-8", "replace")
    broken = lossy.count("\ufffd")
    if sum(1 for char in lossy if char > "\x7f") >= 2 * broken + 2:  # mostly valid UTF-8: no other encoding
        raise Undecodable(position, f"UTF-8 with {broken} broken places, the first at byte {position}")
    found = codec_name(detect_encoding(data)) or "cp1252"
    for encoding in dict.fromkeys(filter(None, (declared, found, "cp1252"))):
        if encoding in ("utf-8", "ascii"):
            continue
        try:
            text = data.decode(encoding)
        except UnicodeError:
            continue
        if _plausible(text):
            return Decoded(text, None if encoding == declared else encoding)
    raise Undecodable(
        position, f"not UTF-8 from byte {position} on, and no other encoding gives plausible text"
    )


def _checked(text: str, repaired: str | None, position: int) -> Decoded:
    """The decoded text; raises `Undecodable` if it is mostly control characters."""
    sample = text[:65_536]
    controls = len(_CONTROL.findall(sample))
    if controls * 10 > len(sample):
        raise Undecodable(
            position, f"{controls} of the first {len(sample)} characters are control characters"
        )
    return Decoded(text, repaired)


def _plausible(text: str) -> bool:
    """Whether the characters beyond ASCII are what a text would hold: letters and its punctuation."""
    if _CONTROL.search(text) or "\ufffd" in text:
        return False
    counts = Counter(char for char in text if char > "\x7f")
    good = sum(
        n for char, n in counts.items() if char in _PUNCTUATION or unicodedata.category(char)[0] in "LMP"
    )
    return 2 * good > sum(counts.values())


@lru_cache(maxsize=256)
def codec_name(label: str | None) -> str | None:
    """Python's codec for an encoding label of the web, or None for an unknown one."""
    if not label:
        return None
    from resiliparse.parse.encoding import map_encoding_to_html5

    for name in (map_encoding_to_html5(label.strip(), False), label.strip()):
        try:
            info = codecs.lookup(name or "")
        except (LookupError, ValueError):
            continue
        if getattr(info, "_is_text_encoding", True):
            return info.name
    return None


def scrub_surrogates(text: str) -> str:
    """`text` with pairs of surrogates joined and lone ones replaced by U+FFFD: now it can be UTF-8."""
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if _SURROGATE.search(text)
        else text
    )


def clean(texts: pa.LargeStringArray, repair: bool, counters: Counter[str]) -> pa.LargeStringArray:
    """The batch with mojibake mended (if `repair`), newlines as \\n, control characters out; counted.

    One pass of RE2 over the batch finds the texts that need anything; only they become Python strings.
    Unicode is not normalised otherwise. ftfy: Speer (2019), https://ftfy.readthedocs.io
    """
    if not len(texts):
        return texts
    suspects = pc.match_substring_regex(texts, _DIRTY)
    mojibake: frozenset[int] = frozenset()
    if repair and len(unusual := pc.indices_nonzero(pc.invert(pc.string_is_ascii(texts)))):
        bad = pc.match_substring_regex(texts.take(unusual), _mojibake_prefilter())
        mojibake = frozenset(unusual.filter(bad).to_pylist())
    rows = sorted(mojibake.union(pc.indices_nonzero(suspects).to_pylist()))
    changed = {}
    for row in rows:
        before = texts[row].as_py()
        after = _mend(before) if row in mojibake else before
        if after != before:
            counters["encoding_repaired"] += 1
            counters["encoding_repaired/mojibake"] += 1
        lined = _LINE_END.sub("\n", after)
        stripped = _CONTROL.sub("", lined)
        if stripped != lined:
            counters["control_characters_stripped"] += 1
        if stripped != before:
            changed[row] = stripped
    if not changed:
        return texts
    mask = np.zeros(len(texts), np.bool_)
    mask[list(changed)] = True
    replaced: pa.LargeStringArray = pc.replace_with_mask(
        texts, pa.array(mask), pa.array(list(changed.values()), pa.large_string())
    )
    return replaced


def _mend(text: str) -> str:
    """ftfy's repair of wrongly decoded text, where its badness heuristic finds any; nothing else of ftfy."""
    from ftfy import fix_text
    from ftfy.badness import is_bad

    return fix_text(text, _ftfy_config()) if is_bad(text) else text


@lru_cache(maxsize=1)
def _ftfy_config() -> Any:
    from ftfy import TextFixerConfig

    others = (
        "unescape_html remove_terminal_escapes fix_latin_ligatures fix_character_width uncurl_quotes"
        " fix_line_breaks fix_surrogates remove_control_chars explain"
    )
    return TextFixerConfig(normalization=None, **dict.fromkeys(re.findall(r"\w+", others), False))


@lru_cache(maxsize=1)
def _mojibake_prefilter() -> str:
    """An RE2 pattern that matches whatever `ftfy.badness.is_bad` matches, and little else.

    Every alternative of that heuristic holds a C1 control, or two neighbours out of its character classes
    of which one at least is no plain Greek or Cyrillic letter, or one of a few fixed pairs.
    """
    from ftfy.badness import MOJIBAKE_CATEGORIES as classes

    letters = classes["lower_common"] + classes["upper_common"]
    odd = "".join(
        text for name, text in classes.items() if name not in ("common", "c1", "lower_common", "upper_common")
    )
    return (
        f"[\\x{{80}}-\\x{{9f}}]|[{odd}{letters}][{odd}]|[{odd}][{odd}{letters}]"
        "|[ÂÃÎÐØÙà√≈‚βāÅ][^\\x00-\\x7f]|[Œœ](?:[^A-Za-z]|$)|[ÃÂ][ \\x{a0}]|вЂ|ГўВЂВ"
    )
