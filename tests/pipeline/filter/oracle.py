"""The signals once more, in plain Python and the slow way, to hold the kernels against."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from corpusmill.pipeline.filter.signals.web_corpora import COUNTED
from corpusmill.pipeline.filter.text.words import FUNCTION_WORDS
from corpusmill.pipeline.text.unicode_tables import CLOSER, TERMINAL, class_table

STOP = {"the", "be", "to", "of", "and", "that", "have", "with"}
POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


LIST_MARKS = tuple("•‣▶◀◦■□▪▫–")
ADDRESS = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?://[!$-_a-z]+")
COUNTER = re.compile(rf"\W*\d(?:,|\.|\d)*[kmb]?\s+(?:{'|'.join(COUNTED)})\W*")
EAST_ASIAN = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "HALFWIDTH KATAKANA",
    "BOPOMOFO",
    "HANGUL",
    "HALFWIDTH HANGUL",
    "IDEOGRAPHIC",
    "VERTICAL KANA",
    "VERTICAL IDEOGRAPHIC",
    "HENTAIGANA",
    "MASU MARK",
)


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


def lower(char: str) -> str:
    """The lower case of one upper case letter, where it is one character."""
    found = char.lower()
    return found if unicodedata.category(char) == "Lu" and len(found) == 1 else char


def bare(word: str) -> str:
    return "".join(lower(c) for c in word if unicodedata.category(c)[0] in "LMN")


def entropy(words: list[str]) -> float:
    counts = Counter(words).values()
    return -sum(n / len(words) * math.log(n / len(words)) for n in counts)


def is_capitalized(word: str) -> bool:
    letters = [unicodedata.category(c) for c in word if c.isalpha()]
    return letters[:1] == ["Lu"] and letters.count("Lu") == 1


def sentences_of(text: str) -> list[str]:
    """From a word that begins a sentence to the next that ends one."""
    found, start = [], None
    for word in re.finditer(r"\S+", text):
        start = word.start() if start is None else start
        if ends_in_terminal(word.group()):
            found.append(text[start : word.end()])
            start = None
    return found


def is_phrase_line(line: str) -> bool:
    line, words = ascii_lower(line), line.split()
    found = "items in cart" in line or line.endswith("read more...") or line.startswith("sign-in")
    return found and len(words) <= 10


def is_counter(line: str) -> bool:
    return COUNTER.fullmatch(ascii_lower(line)) is not None


def mean_share(parts: list[int], lines: list[str]) -> float:
    return share(sum(n / len(line) for n, line in zip(parts, lines, strict=True)), len(lines))


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
    javascript = ["javascript" in ascii_lower(line) for line in lines]
    policy = [any(p in ascii_lower(line) for p in POLICY) for line in lines]
    long_word = [any(len(word) > 1000 for word in line.split()) for line in lines]
    kept = [
        c4_end(line) and len(line.split()) >= 3 and not (a or b or c)
        for line, a, b, c in zip(lines, javascript, policy, long_word, strict=True)
    ]
    word_chars = sum(map(len, words))
    bare_words = [b for b in map(bare, words) if b]
    uppers = [sum(unicodedata.category(c) == "Lu" for c in line) for line in lines]
    digits = [sum(unicodedata.category(c) == "Nd" for c in line) for line in lines]
    sentence_sizes = [len(s) for s in sentences_of(text)]
    addresses = sum(len(found) for found in ADDRESS.findall(text))
    policy_paras = [any(p in ascii_lower(line) for line in para for p in POLICY) for para in paragraphs]
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
        "document.marks_ratio": share(sum(c[0] == "M" for c in categories), len(text)),
        "document.cjk_ratio": share(
            sum(c.isalpha() and unicodedata.name(c, "").startswith(EAST_ASIAN) for c in text), len(text)
        ),
        "document.non_alnum_ratio": share(sum(c[0] != "L" and c != "Nd" for c in categories), len(text)),
        "document.ellipsis_ratio": share(3 * text.count("...") + text.count("…"), len(text)),
        "document.short_words_ratio": share(sum(len(w) <= 3 for w in words), len(words)),
        "document.long_words_ratio": share(sum(len(w) >= 7 for w in words), len(words)),
        "document.all_caps_words_ratio": share(
            sum("Lu" in cs and "Ll" not in cs for cs in (list(map(unicodedata.category, w)) for w in words)),
            len(words),
        ),
        "document.capitalized_words_ratio": share(sum(map(is_capitalized, words)), len(words)),
        "document.stop_words_ratio": share(sum(b in STOP for b in bare_words), len(words)),
        "document.longest_word": max(map(len, words), default=0),
        "document.type_token_ratio": share(len(set(bare_words)), len(bare_words)),
        "document.mean_line_words": share(len(words), len(lines)),
        "document.short_lines_ratio": share(sum(len(line) <= 10 for line in lines), len(lines)),
        "document.lines_of_2000_ratio": share(sum(len(line) >= 2000 for line in lines), len(lines)),
        "document.lines_of_10000_ratio": share(sum(len(line) >= 10000 for line in lines), len(lines)),
        "document.mean_paragraph_length": share(sum(para_sizes), len(paragraphs)),
        "document.short_paragraphs_ratio": share(sum(s <= 100 for s in para_sizes), len(paragraphs)),
        "document.long_paragraphs_ratio": share(sum(s >= 1000 for s in para_sizes), len(paragraphs)),
        "document.mean_sentence_length": share(sum(sentence_sizes), len(sentence_sizes)),
        "document.short_sentences_ratio": share(sum(s <= 20 for s in sentence_sizes), len(sentence_sizes)),
        "document.long_sentences_ratio": share(sum(s >= 75 for s in sentence_sizes), len(sentence_sizes)),
        "document.mean_line_length": share(sum(map(len, lines)), len(lines)),
        "gopher.word_count": len(words),
        "gopher.mean_word_length": share(word_chars, len(words)),
        "gopher.hash_ratio": share(text.count("#"), len(words)),
        "gopher.ellipsis_ratio": share(text.count("...") + text.count("…"), len(words)),
        "gopher.bullet_lines": share(sum(line[0] in "•●*-" for line in lines), len(lines)),
        "gopher.ellipsis_lines": share(sum(line.endswith(("...", "…")) for line in lines), len(lines)),
        "gopher.alpha_words": share(sum(any(c.isalpha() for c in word) for word in words), len(words)),
        "gopher.stop_words": len(STOP & set(bare_words)),
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
        "nemo.non_alnum_ratio": share(
            sum(c[0] not in "LM" and c != "Nd" for c in categories) - sum(text.count(c) for c in "\n.,!?"),
            len(text),
        ),
        "nemo.url_ratio": share(addresses, len(text)),
        "nemo.bracket_ratio": share(sum(text.count(c) for c in "()[]{}⟨⟩"), len(text)),
        "nemo.boilerplate_paragraphs": share(sum(policy_paras), len(paragraphs)),
        "redpajama.word_count": len(bare_words),
        "redpajama.mean_word_length": share(sum(map(len, bare_words)), len(bare_words)),
        "redpajama.unigram_entropy": entropy(bare_words),
        "redpajama.stop_word_ratio": share(sum(b in FUNCTION_WORDS for b in bare_words), len(words)),
        "redpajama.symbol_ratio": share(text.count("#") + text.count("...") + text.count("…"), len(words)),
        "redpajama.curly_bracket_ratio": share(text.count("{") + text.count("}"), len(text)),
        "redpajama.lorem_ipsum_ratio": share(ascii_lower(text).count("lorem ipsum"), len(text)),
        "redpajama.terminal_lines": share(sum(line.endswith(tuple(".!?”")) for line in lines), len(lines)),
        "redpajama.bullet_lines": share(sum(line.startswith(LIST_MARKS) for line in lines), len(lines)),
        "redpajama.mean_line_uppercase": mean_share(uppers, lines),
        "redpajama.mean_line_digits": mean_share(digits, lines),
        "refinedweb.uppercase_lines": share(
            sum(n > 0.5 * len(line) for n, line in zip(uppers, lines, strict=True)), len(lines)
        ),
        "refinedweb.numeric_lines": share(
            sum(n == len(line) for n, line in zip(digits, lines, strict=True)), len(lines)
        ),
        "refinedweb.one_word_lines": share(sum(len(line.split()) == 1 for line in lines), len(lines)),
        "refinedweb.counter_lines": share(sum(map(is_counter, lines)), len(lines)),
        "refinedweb.phrase_lines": share(sum(map(is_phrase_line, lines)), len(lines)),
    }
    return {name: float(value) for name, value in result.items()}
