"""Clean text out of text: mojibake repaired, controls out, newlines alike."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.ingest.decoding import CONTROL
from corpusmill.pipeline.ingest.mojibake import bad_ones, classes, mend
from corpusmill.pipeline.ingest.text_marks import DIRTY, SUSPECT, UNUSUAL, marks
from corpusmill.pipeline.text.buffers import frozen, view

# Line ends of any system, and the controls that a text may not hold (tab and newline stay).
_LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_CLASSES = frozen(np.zeros(0, np.uint8))


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

    One pass over the bytes of the batch finds the texts that may need anything; only they become Python strings.
    Unicode is not normalised otherwise.
    """
    if not len(texts):
        return texts
    found = _marks(texts, repair)
    mojibake: frozenset[int] = frozenset()
    if repair and len(suspects := np.flatnonzero(found & SUSPECT)):
        mojibake = frozenset(bad_ones(texts, suspects))
    rows = sorted(mojibake.union(np.flatnonzero(found & DIRTY).tolist()))
    changed = {}
    for row in rows:
        before = texts[row].as_py()
        after = mend(before) if row in mojibake else before
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


def _marks(texts: pa.LargeStringArray, repair: bool) -> npt.NDArray[np.uint8]:
    """The marks of each text (`corpusmill.pipeline.ingest.text_marks`); ftfy is not imported for texts of ASCII."""
    offsets, data = view(texts)
    known = classes() if repair and classes.cache_info().currsize else _NO_CLASSES
    found: npt.NDArray[np.uint8] = marks(offsets, data, known)
    if repair and not len(known) and np.any(found & UNUSUAL):
        found = marks(offsets, data, classes())
    return found
