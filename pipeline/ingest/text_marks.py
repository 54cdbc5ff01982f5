"""What a text holds that cleaning looks at, found in one pass over the bytes of a batch: controls and line ends to be changed, characters beyond
ASCII, neighbours that wrong decoding gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.text.eight_bytes import read_word, unclean
from corpusmill.pipeline.text.utf8 import decode
from corpusmill.pipeline.text.word_hashes import byte_at

# Marks of a text.
DIRTY, UNUSUAL, SUSPECT = 1, 2, 4
# Classes of characters, bits of a table of the first 65,536.
ODD, LETTER, BEFORE_ANY, LIGATURE, BEFORE_SPACE, ALONE = 1, 2, 4, 8, 16, 32
CLASSES = 1 << 16


@compiled
def _marked(data: Any, i: int, stop: int, classes: Any, places: Any) -> Any:
    """(marks, places that make it suspect) of one text; of the places as many as fit, each the byte of a second neighbour."""
    seen, count = 0, 0
    while i < stop:
        if i + 8 <= stop and not unclean(read_word(data, i)):
            i += 8
            continue
        end = min(i + 8, stop)
        while i < end and byte_at(data, i) < 0x80:
            byte = byte_at(data, i)
            if (byte < 0x20 and byte != 0x09 and byte != 0x0A) or byte == 0x7F:
                seen |= DIRTY
            i += 1
        before = 0
        while i < stop and byte_at(data, i) >= 0x80:
            seen |= UNUSUAL
            point, size = decode(data, i)
            if (point < 0xA0) or point == 0xFEFF or point == 0x2028 or point == 0x2029:
                seen |= DIRTY
            if len(classes):
                kind = classes[point] if point < CLASSES else 0
                if (
                    kind & ALONE
                    or before & (BEFORE_ANY | LIGATURE)
                    or (before & LETTER and kind & ODD)
                    or (before & ODD and kind & LETTER)
                    or (point == 0xA0 and before & BEFORE_SPACE)
                ):
                    if count < len(places):
                        places[count] = i
                    count += 1
                before = kind
            i += size
        if before and i < stop:
            byte = byte_at(data, i) | 0x20
            if (before & LIGATURE and (byte < 0x61 or byte > 0x7A)) or (
                before & BEFORE_SPACE and byte == 0x20
            ):
                if count < len(places):
                    places[count] = i
                count += 1
    return seen | (SUSPECT if count else 0), count


@compiled
def marks(offsets: Any, data: Any, classes: Any) -> Any:
    """uint8[texts]: the marks of each text, large_string offsets and bytes of valid UTF-8.

    `DIRTY`: a control that a text may not hold, or a line end other than a newline. `UNUSUAL`: a character beyond ASCII. `SUSPECT`: a C1 control,
    or neighbours of which one at least is of the `classes`, uint8[`CLASSES`], as `mojibake.classes` has them; of none without classes.
    """
    found = np.zeros(len(offsets) - 1, np.uint8)
    places = np.empty(0, np.int64)
    for row in range(len(found)):
        found[row] = _marked(data, offsets[row], offsets[row + 1], classes, places)[0]
    return found


@compiled
def suspect_places(data: Any, begin: int, stop: int, classes: Any, places: Any) -> int:
    """How many places of the text `data[begin:stop]` make it `SUSPECT`; `places`, int64, takes as many of them as fit, as bytes of `data`."""
    count: int = _marked(data, begin, stop, classes, places)[1]
    return count


@compiled
def long_enough(offsets: Any, data: Any, least: int) -> Any:
    """bool[texts]: whether a text surely has `least` characters without the white space around it; false where it is in doubt.

    Counted are characters from `!` to `~` and the first bytes of those beyond Latin-1's signs that no white space begins with.
    """
    enough = np.zeros(len(offsets) - 1, np.bool_)
    for row in range(len(enough)):
        i, stop = offsets[row], offsets[row + 1]
        count = 0
        while i < stop and count < least:
            byte = byte_at(data, i)
            count += (0x20 < byte < 0x7F) or 0xC3 <= byte <= 0xE0 or byte >= 0xE4
            i += 1
        enough[row] = count >= least
    return enough
