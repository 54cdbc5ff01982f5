"""Each tool's definitions read slowly, in plain Python, a text at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

from corpusmill.pipeline.text import unicode_tables as u

STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
Grams = list[tuple[str, ...]]


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def grams_of(words: Sequence[str], n: int) -> Grams:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def later(items: Sequence[str]) -> tuple[int, int]:
    """(later copies, their characters)."""
    copies = [item for i, item in enumerate(items) if item in items[:i]]
    return len(copies), sum(map(len, copies))


def every(items: Sequence[str]) -> tuple[int, int]:
    """(all items that come twice, their characters)."""
    counts = Counter(items)
    copies = [item for item in items if counts[item] > 1]
    return len(copies), sum(map(len, copies))


def first_of_most(grams: Grams) -> tuple[tuple[str, ...], int]:
    counts = Counter(grams)
    most = max(counts.values())
    return next((gram, most) for gram in grams if counts[gram] == most)


def dolma(text: str) -> dict[str, float]:
    words = text.split()
    chars = sum(map(len, words))
    lines = text.split("\n")
    copies, copied = every(lines)
    own = {
        "word_count": len(words),
        "median_word_length": median(map(len, words)) if words else 0,
        "symbol_ratio": ratio(sum("#" in w or "…" in w for w in words), len(words)),
        "alpha_words": ratio(sum(any(map(str.isalpha, w)) for w in words), len(words)),
        "stop_words": sum(w in STOP_WORDS for w in words),
        "bullet_lines": sum(line.startswith(("*", "-")) for line in lines) / len(lines),
        "ellipsis_lines": sum(line.endswith("…") for line in lines) / len(lines),
        "dup_line_frac": copies / len(lines),
        "dup_line_chars": ratio(copied, chars),
    }
    for n in range(2, 11):
        grams = grams_of(words, n)
        if n < 5:
            gram, times = first_of_most(grams) if grams else ((), 0)
            own[f"top_{n}_gram"] = ratio(times * len("".join(gram)), chars)
        else:
            counts = Counter(grams)
            sizes = [len("".join(gram)) for gram in grams]
            again = sum(size for gram, size in zip(grams, sizes, strict=True) if counts[gram] > 1)
            own[f"dup_{n}_gram"] = ratio(again, sum(sizes))
    return own


def unicode_words(text: str) -> list[str]:
    """UAX #29 as pairs of neighbours, by its rules WB4 to WB13b, on the classes of the table."""
    table = u.word_break_table()
    groups: list[str] = []  # a character and what extends it (WB4)
    for char in text:
        if groups and table[ord(char)] == u.WB_EXTEND and not groups[-1][0].isspace():
            groups[-1] += char
        else:
            groups.append(char)
    kinds = [int(table[ord(group[0])]) for group in groups]

    def joined(i: int) -> bool:
        """Whether there is no break between groups i - 1 and i."""
        a, b = kinds[i - 1], kinds[i]
        before = kinds[i - 2] if i > 1 else None
        after = kinds[i + 1] if i + 1 < len(kinds) else None
        if {a, b} <= {u.WB_LETTER, u.WB_NUMBER} or (a == b == u.WB_KATAKANA):  # WB5, 8, 9, 10, 13
            return True
        for kind, middles in (
            (u.WB_LETTER, (u.WB_MID_LETTER, u.WB_MID_BOTH)),
            (u.WB_NUMBER, (u.WB_MID_NUMBER, u.WB_MID_BOTH)),
        ):
            if (a == kind and b in middles and after == kind) or (
                b == kind and a in middles and before == kind
            ):
                return True  # WB6, 7, 11, 12
        plain = (u.WB_LETTER, u.WB_NUMBER, u.WB_KATAKANA)
        return (b == u.WB_JOINER and a in (*plain, u.WB_JOINER)) or (
            a == u.WB_JOINER and b in plain
        )  # WB13a, b

    words: list[str] = []
    for i, group in enumerate(groups):
        if i and joined(i):
            words[-1] += group
        else:
            words.append(group)
    return [
        word for word in words if table[ord(word[0])] in (u.WB_LETTER, u.WB_NUMBER, u.WB_KATAKANA, u.WB_ALONE)
    ]


def dclm(text: str) -> dict[str, float]:
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    marks = sum(map(text.count, ("#", "...", ". . .", "…")))
    own = {
        "mean_word_length": ratio(sum(map(len, words)), len(words)),
        "symbol_ratio": ratio(marks, len(words)),
        "bullet_lines": ratio(sum(line.startswith(("●", "•", "*", "-")) for line in lines), len(lines)),
        "ellipsis_lines": ratio(sum(line.endswith(("...", ". . .", "…")) for line in lines), len(lines)),
        "non_alpha_words": ratio(sum(not any(map(str.isalpha, w)) for w in words), len(words)),
        "stop_words": sum(w.lower() in STOP_WORDS for w in words),
    }
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    for unit, parts in (("line", lines), ("para", paragraphs)):
        copies, copied = every(parts)
        own[f"dup_{unit}_frac"] = ratio(copies, len(parts))
        own[f"dup_{unit}_chars"] = ratio(copied, sum(map(len, parts)))
    words = unicode_words(text)
    chars = sum(map(len, words))
    own["word_count"] = len(words)
    for n in range(2, 11):
        grams = grams_of(words, n)
        counts = Counter(grams)
        most = max(counts.values(), default=0)
        if n < 5:
            longest = max((len("".join(g)) for g in grams if counts[g] == most), default=0)
            own[f"top_{n}_gram"] = ratio(longest * most, chars) if most > 1 else 0
        else:
            covered = {j for i, g in enumerate(grams) if counts[g] > 1 for j in range(i, i + n)}
            own[f"dup_{n}_gram"] = ratio(sum(len(words[j]) for j in covered), chars)
    return own


def nemo(text: str) -> dict[str, float]:
    words = text.split()
    lines = [line for line in text.split("\n") if line.strip()]
    paragraphs = text.split("\n\n")
    ends = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
    odd = sum(w in ends or len(re.findall("#+", w)) / len(w) > 0.5 for w in words)
    own = {
        "word_count": len(words),
        "mean_word_length": ratio(sum(map(len, words)), len(words)),
        "symbol_ratio": ratio(odd, len(words)),
        "bullet_lines": ratio(
            sum(line.strip().startswith(tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")) for line in lines), len(lines)
        ),
        "ellipsis_lines": ratio(sum(_ascii_lower(line.strip()).endswith(ends) for line in lines), len(lines)),
        "alpha_words": ratio(sum(any(map(str.isalpha, w)) for w in words), len(words)),
        "stop_words": sum(w in STOP_WORDS for w in words),
    }
    for unit, parts in (("line", lines), ("para", paragraphs)):
        copies, copied = later(parts)
        own[f"unique_{unit}_frac"] = 1 - ratio(copies, len(parts))
        own[f"unique_{unit}_chars"] = 1 - ratio(copied, sum(map(len, parts)))
    for n in range(2, 11):
        grams = grams_of(words, n)
        kind = "top" if n < 5 else "dup"
        if not grams:
            own[f"{kind}_{n}_gram"] = 1.0
        elif n < 5:
            gram = " ".join(first_of_most(grams)[0])
            own[f"top_{n}_gram"] = (len(text) - len(text.replace(gram, ""))) / len(text)
        else:
            covered: set[int] = set()
            spaces = 0
            for i, g in enumerate(grams):
                if g in grams[:i]:
                    new = set(range(i, i + n)) - covered
                    spaces += min(len(new), n - 1)
                    covered |= new
            own[f"dup_{n}_gram"] = (sum(len(words[j]) for j in covered) + spaces) / len(text)
    return own


def _ascii_lower(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


def datatrove_repetition(text: str, words: Sequence[str]) -> dict[str, float]:
    """On datatrove's words."""
    own = {}
    for unit, parts in (("para", re.split("\n{2,}", text.strip())), ("line", re.split("\n+", text))):
        copies, copied = later(parts)
        own[f"dup_{unit}_frac"] = copies / len(parts)
        own[f"dup_{unit}_chars"] = ratio(copied, len(text))
    for n in range(2, 11):
        grams = grams_of(words, n)
        if n < 5:
            gram, times = first_of_most(grams) if grams else ((), 0)
            own[f"top_{n}_gram"] = ratio(times * len(" ".join(gram)), len(text))
            continue
        passed, total, i = set(), 0, 0
        while i < len(grams):
            gram_joined = "".join(grams[i])
            if gram_joined in passed:
                total += len(gram_joined)
                i += n
            else:
                passed.add(gram_joined)
                i += 1
        own[f"dup_{n}_gram"] = ratio(total, len(text))
    return own
