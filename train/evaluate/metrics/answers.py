"""Short answers beside right ones: exact match, SQuAD's exact match and F1, numbers, and samples that pass a check. Of one item each;
a figure is the mean of its items."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

PUNCTUATION = str.maketrans("", "", string.punctuation)
# As lm-evaluation-harness extracts answers of GSM8K: what follows "#### ", and the last number.
STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")


def exact_match(text: str, references: Sequence[str]) -> float:
    """1 if the text is one of the references, white space around both left out."""
    return float(text.strip() in {one.strip() for one in references})


def squad_exact(text: str, references: Sequence[str]) -> float:
    """1 if the words of the text are those of a reference, as the script of SQuAD 1.1 (Rajpurkar et al. 2016) compares them."""
    return float(any(answer_words(text) == answer_words(one) for one in references))


def squad_f1(text: str, references: Sequence[str]) -> float:
    """The highest F1 of words over the references, likewise."""
    return max(words_f1(answer_words(text), answer_words(one)) for one in references)


def answer_words(text: str) -> list[str]:
    """The words of an answer as SQuAD's script compares them: in lower case, without punctuation and articles."""
    return re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(PUNCTUATION)).split()


def words_f1(found: Sequence[str], wanted: Sequence[str]) -> float:
    """Of two bags of words; 0 if one is empty, 1 if both are (as in the script of SQuAD 2.0)."""
    if not found or not wanted:
        return float(list(found) == list(wanted))
    common = sum((Counter(found) & Counter(wanted)).values())
    return 2.0 * common / (len(found) + len(wanted))


def strict_answer(text: str) -> str | None:
    """The number after the first `#### ` of a text, as written; None if there is none."""
    found = STRICT.search(text)
    return found[1] if found else None


def last_number(text: str) -> str | None:
    """The last number of a text, as written; None if there is none."""
    found = FLEXIBLE.findall(text)
    return (found[-1][0] or found[-1][1]) if found else None


def number(text: str | None) -> Decimal | None:
    """The value of a number as written: with a sign, decimals, separators between thousands, a currency's sign or a full stop behind
    it; None for what is none."""
    cleaned = re.sub(r"[,$\s]", "", text or "").rstrip(".")
    try:
        found = Decimal(cleaned)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def same_number(found: str | None, wanted: str) -> float:
    """1 if both are the same number: 1,000.0 is 1000. A right answer may be a whole solution, whose number is behind its `#### `."""
    value = number(found)
    return float(value is not None and value == number(strict_answer(wanted) or wanted))


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The chance that one of k samples passes, estimated without bias from `samples` of which `passed` did (Chen et al. 2021):
    1 - C(n - c, k) / C(n, k). Raises `ValueError` unless 1 <= k <= samples and 0 <= passed <= samples."""
    if not 1 <= k <= samples or not 0 <= passed <= samples:
        raise ValueError(f"pass@{k} of {samples} samples of which {passed} passed")
    if samples - passed < k:
        return 1.0
    # The quotient of binomials as a product of factors below 1, which neither overflows nor cancels.
    return (
        -float(np.expm1(np.log1p(-k / np.arange(samples - passed + 1, samples + 1)).sum())) if passed else 0.0
    )


ANSWER_METRICS: dict[str, Callable[[str, Sequence[str]], float]] = {
    "exact_match": exact_match,
    "squad_exact": squad_exact,
    "squad_f1": squad_f1,
    "number_strict": lambda text, wanted: max(same_number(strict_answer(text), one) for one in wanted),
    "number_flexible": lambda text, wanted: max(same_number(last_number(text), one) for one in wanted),
}
