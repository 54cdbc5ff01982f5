"""The pass over a batch's bytes: from one byte that can anchor a find to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.redact.kernels.around import (
    armour,
    assignment,
    at_sign,
    hardware,
    prefix,
    sixth,
    userinfo,
)
from corpusmill.pipeline.redact.kernels.candidates import MAX_GROUPS, run
from corpusmill.pipeline.redact.kernels.tables import (
    ASSIGNED,
    AT,
    CARD,
    CLASSES,
    COIN,
    COLON,
    COMMERCIAL_AT,
    DASH,
    DIGIT,
    EQUALS,
    FORMAT,
    IBAN,
    IP4,
    IP6,
    IS_DIGIT,
    MAC,
    NUMBER,
    PEM,
    PHONE,
    QUERY,
    SSN,
    USERINFO,
    WORD,
)
from corpusmill.pipeline.redact.kernels.tokens import token


def candidates(data: npt.NDArray[np.uint8], wanted: Any, plans: Any, lengths: Any) -> npt.NDArray[np.int64]:
    """int64[candidates, 3]: class (`tables.py`), first byte, one past the last byte, in the order met.

    data: uint8[bytes], texts with a zero byte behind each. wanted: bool[classes]. plans: as `runs.run` takes
    them. lengths: as `tokens.token` takes them. One pass; each byte is read a bounded number of times.
    """
    found = np.empty((len(data) // 256 + 64, 3), np.int64)
    count = _candidates(data, wanted, plans, lengths, found)
    if count > len(found):
        found = np.empty((count, 3), np.int64)
        _candidates(data, wanted, plans, lengths, found)
    return found[:count]


@compiled
def _candidates(data: Any, wanted: Any, plans: Any, lengths: Any, found: Any) -> int:
    n, count = len(data), 0
    groups = np.empty((MAX_GROUPS, 3), np.int64)
    in_runs = wanted[IP4] or wanted[CARD] or wanted[SSN] or wanted[NUMBER] or wanted[PHONE] or wanted[WORD]
    in_words = wanted[IBAN] or wanted[WORD] or wanted[COIN] or wanted[FORMAT] or wanted[MAC]
    word_end = run_end = colon_end = 0
    i = 0
    while i < n:
        kind = CLASSES[data[i]]
        if kind == 0:
            i += 1
            continue
        if kind == DIGIT:
            if in_words and i >= word_end:
                count, word_end = token(data, i, wanted, lengths, found, count)
            if in_runs and i >= run_end:
                count, run_end = run(data, i, wanted, plans, groups, found, count)
            while i < n and IS_DIGIT[data[i]]:
                i += 1
            continue
        if kind == COLON:
            if i + 2 < n and data[i + 1] == 47 and data[i + 2] == 47:
                if wanted[USERINFO]:
                    count = userinfo(data, i, found, count)
            else:
                if wanted[MAC]:
                    count = hardware(data, i, found, count)
                if wanted[IP6] and i >= colon_end:
                    count, colon_end = sixth(data, i, found, count)
                if wanted[ASSIGNED]:
                    count = assignment(data, i, wanted, found, count)
        elif kind == EQUALS:
            if wanted[ASSIGNED] or wanted[QUERY]:
                count = assignment(data, i, wanted, found, count)
        elif kind == COMMERCIAL_AT:
            if wanted[AT]:
                count = at_sign(data, i, found, count)
        else:
            if wanted[FORMAT]:
                count = prefix(data, i, found, count)
            if kind == DASH:
                if wanted[PEM]:
                    count = armour(data, i, found, count)
                if wanted[MAC]:
                    count = hardware(data, i, found, count)
        i += 1
    return count
