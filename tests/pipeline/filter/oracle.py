"""The signals once more, in plain Python and the slow way, to hold the kernels against."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from pipeline.filter.text.unicode import CLOSER, TERMINAL, class_table

STOP = {"the", "be", "to", "of", "and", "that", "have", "with"}
PUNCTUATION = "".join(c for c in map(chr, range(128)) if unicodedata.category(c)[0] == "P")
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def ends_in_terminal(text: str) -> bool:
    while text and class_table()[ord(text[-1])] & CLOSER:
        text = text[:-1]
    return bool(text) and bool(class_table()[ord(text[-1])] & TERMINAL)


def c4_end(line: str) -> bool:
    line = re.sub(r"(\[([0-9]+|edit|citation needed)\] *)+$", "", line).rstrip(" ")
    return line.endswith(tuple(".?!\"'”’")) and not line.endswith(("...", "…"))


def ascii_lower(text: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in text)


def later(items: Sequence[object], sizes: Sequence[int]) -> tuple[int, int]:
    seen, copies, size = set(), 0, 0
    for item, own in zip(items, sizes, strict=True):
        copies, size = (copies + 1, size + own) if item in seen else (copies, size)
        seen.add(item)
    return copies, size


def top(words: list[str], n: int) -> float:
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    counts = Counter(grams)
    repeated = [
        (count, sum(map(len, gram)), -grams.index(gram), gram) for gram, count in counts.items() if count > 1
    ]
    if not repeated:
        return 0.0
    best = max(repeated)[3]
    covered = {j for i, gram in enumerate(grams) if gram == best for j in range(i, i + n)}
    return share(sum(len(words[j]) for j in covered), sum(map(len, words)))


def duplicate(words: list[str], n: int) -> float:
    seen: set[tuple[str, ...]] = set()
    covered: set[int] = set()
    for i in range(len(words) - n + 1):
        gram = tuple(words[i : i + n])
        if gram in seen:
            covered |= set(range(i, i + n))
        seen.add(gram)
    return share(sum(len(words[j]) for j in covered), sum(map(len, words)))


def signals(text: str) -> dict[str, float]:
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    paragraphs: list[list[str]] = [[]]
    for line in (part.strip() for part in text.split("\n")):
        if line:
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    paragraphs = [p for p in paragraphs if p]
    para_sizes = [sum(map(len, p)) + len(p) - 1 for p in paragraphs]
    line_copies = later([tuple(line.split()) for line in lines], [len(line) for line in lines])
    para_copies = later([tuple(tuple(line.split()) for line in p) for p in paragraphs], para_sizes)
    categories = [unicodedata.category(c) for c in text]
    sentences = [sum(ends_in_terminal(word) for word in line.split()) for line in lines]
    bare = [ascii_lower(word).strip(PUNCTUATION) for word in words]
    javascript = ["javascript" in ascii_lower(line) for line in lines]
    policy = [any(p in ascii_lower(line) for p in POLICY) for line in lines]
    long_word = [any(len(word) > 1000 for word in line.split()) for line in lines]
    kept = [
        c4_end(line) and len(line.split()) >= 3 and not (a or b or c)
        for line, a, b, c in zip(lines, javascript, policy, long_word, strict=True)
    ]
    word_chars = sum(map(len, words))
    result = {
        "document.bytes": len(text.encode()),
        "document.chars": len(text),
        "document.words": len(words),
        "document.lines": len(lines),
        "document.paragraphs": len(paragraphs),
        "document.sentences": sum(sentences),
        "document.letters_ratio": share(sum(c[0] == "L" for c in categories), len(text)),
        "document.digits_ratio": share(categories.count("Nd"), len(text)),
        "document.uppercase_ratio": share(categories.count("Lu"), len(text)),
        "document.punctuation_ratio": share(sum(c[0] == "P" for c in categories), len(text)),
        "document.white_space_ratio": share(sum(c.isspace() for c in text), len(text)),
        "document.mean_line_length": share(sum(map(len, lines)), len(lines)),
        "gopher.word_count": len(words),
        "gopher.mean_word_length": share(word_chars, len(words)),
        "gopher.hash_ratio": share(text.count("#"), len(words)),
        "gopher.ellipsis_ratio": share(text.count("...") + text.count("…"), len(words)),
        "gopher.bullet_lines": share(sum(line[0] in "•●*-" for line in lines), len(lines)),
        "gopher.ellipsis_lines": share(sum(line.endswith(("...", "…")) for line in lines), len(lines)),
        "gopher.alpha_words": share(sum(any(c.isalpha() for c in word) for word in words), len(words)),
        "gopher.stop_words": len(STOP & set(bare)),
        "gopher.dup_line_frac": share(line_copies[0], len(lines)),
        "gopher.dup_para_frac": share(para_copies[0], len(paragraphs)),
        "gopher.dup_line_chars": share(line_copies[1], len(text)),
        "gopher.dup_para_chars": share(para_copies[1], len(text)),
        **{f"gopher.top_{n}_gram": top(words, n) for n in (2, 3, 4)},
        **{f"gopher.dup_{n}_gram": duplicate(words, n) for n in range(5, 11)},
        "c4.terminal_lines": share(sum(map(c4_end, lines)), len(lines)),
        "c4.kept_lines": share(sum(kept), len(lines)),
        "c4.kept_sentences": sum(max(s, 1) for s, k in zip(sentences, kept, strict=True) if k),
        "c4.javascript_lines": sum(javascript),
        "c4.policy_lines": sum(policy),
        "c4.long_word_lines": sum(long_word),
        "c4.lorem_ipsum": ascii_lower(text).count("lorem ipsum"),
        "c4.curly_brackets": text.count("{"),
        "fineweb.line_punct_ratio": share(sum(map(ends_in_terminal, lines)), len(lines)),
        "fineweb.short_line_ratio": share(sum(len(line) <= 30 for line in lines), len(lines)),
        "fineweb.char_dup_ratio": share(line_copies[1], len(text) - text.count("\n")),
        "fineweb.newline_ratio": share(text.count("\n"), len(words)),
    }
    return {name: float(value) for name, value in result.items()}
