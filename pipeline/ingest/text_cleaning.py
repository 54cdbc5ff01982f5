"""Clean text out of text: mojibake repaired, controls out, newlines alike."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.ingest.decoding import CONTROL

# Line ends of any system, and the controls that a text may not hold (tab and newline stay).
_LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_DIRTY = "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x{9f}\\x{feff}\\x{2028}\\x{2029}]"  # RE2: either of the two
_SURROGATE = re.compile("[\ud800-\udfff]")


def scrub_surrogates(text: str) -> str:
    """`text` with pairs of surrogates joined and lone ones replaced by U+FFFD: now it can be UTF-8."""
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if _SURROGATE.search(text)
        else text
    )


def clean(
    texts: pa.LargeStringArray, repair: bool, counters: Counter[str], repaired: list[int] | None = None
) -> pa.LargeStringArray:
    """The batch with mojibake mended (if `repair`), newlines as \\n, control characters out; counted.

    `repaired` takes the rows whose mojibake was.

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
            if repaired is not None:
                repaired.append(row)
        lined = _LINE_END.sub("\n", after)
        stripped = CONTROL.sub("", lined)
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
