"""datatrove's four quality filters at their defaults, on English words.

python datatrove_decisions.py decisions DOCUMENTS    prints {"seconds": CPU seconds, "why": {filter: [why each
                                                     document goes, null if it stays]}}
python datatrove_decisions.py values DOCUMENTS       prints [{signal: value} of each document], by datatrove's functions
python datatrove_decisions.py words DOCUMENTS        prints [[word, ...] of each document]
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from common import cpu_seconds, documents
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.pipeline.filters.gopher_quality_filter import STOP_WORDS
from datatrove.pipeline.filters.gopher_repetition_filter import (
    find_all_duplicate,
    find_duplicates,
    find_top_duplicate,
    get_n_grams,
)
from datatrove.utils.text import PUNCTUATION_SET, TERMINAL_PUNCTUATION, split_into_sentences, split_into_words
from loguru import logger

FILTERS = {
    "quality": GopherQualityFilter, "repetition": GopherRepetitionFilter, "c4": C4QualityFilter,
    "fineweb": FineWebQualityFilter,
}  # fmt: skip


def decisions(texts: list[str]) -> dict[str, Any]:
    """Each filter by itself on the text as it came; the filters are loaded before the clock starts."""
    found: dict[str, list[str | None]] = {name: [] for name in FILTERS}
    filters = {name: kind() for name, kind in FILTERS.items()}
    split_into_words("loaded", "eng")
    seconds = cpu_seconds(lambda: _decide(texts, filters, found))
    return {"seconds": seconds, "why": found}


def _decide(texts: list[str], filters: dict[str, Any], found: dict[str, list[str | None]]) -> None:
    for number, text in enumerate(texts):
        for name, own in filters.items():
            answer = own.filter(Document(text=text, id=str(number)))
            found[name].append(None if answer is True else answer[1])


def values(text: str) -> dict[str, float]:
    """What the filters compare, under the names of the signals."""
    words = split_into_words(text, "eng")
    plain = [word for word in words if any(char not in PUNCTUATION_SET for char in word)]
    lines = text.splitlines()
    some = max(len(words), 1)
    own = {
        "word_count": len(plain),
        "mean_word_length": sum(map(len, plain)) / max(len(plain), 1),
        "hash_ratio": text.count("#") / some,
        "ellipsis_ratio": (text.count("...") + text.count("…")) / some,
        "bullet_lines": sum(line.lstrip().startswith(("•", "-")) for line in lines) / max(len(lines), 1),
        "ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in lines) / max(len(lines), 1),
        "alpha_words": sum(any(char.isalpha() for char in word) for word in words) / some,
        "stop_words": len(set(STOP_WORDS) & set(words)),
    }
    for unit, segments in (("para", re.split(r"\n{2,}", text.strip())), ("line", re.split(r"\n+", text))):
        copies, chars = find_duplicates(segments)
        own[f"dup_{unit}_frac"] = copies / len(segments)
        own[f"dup_{unit}_chars"] = chars / max(len(text), 1)
    for n in range(2, 5):
        grams = get_n_grams(words, n)
        own[f"top_{n}_gram"] = find_top_duplicate(grams) / len(text) if grams else 0
    for n in range(5, 11):
        own[f"dup_{n}_gram"] = find_all_duplicate(words, n) / max(len(text), 1)
    full = [line for line in text.split("\n") if line.strip()]
    fineweb = {
        "line_punct_ratio": sum(line.endswith(tuple(TERMINAL_PUNCTUATION)) for line in full)
        / max(len(full), 1),
        "short_line_ratio": sum(len(line) <= 30 for line in full) / max(len(full), 1),
        "char_dup_ratio": find_duplicates(full)[1] / max(len(text.replace("\n", "")), 1),
        "newline_ratio": text.count("\n") / some,
    }
    kept = Document(text=text, id="")
    C4QualityFilter(min_num_sentences=-1, filter_lorem_ipsum=False, filter_curly_bracket=False).filter(kept)
    lines = kept.text.split("\n") if kept.text else []
    c4 = {
        "kept_lines": len(lines),
        "kept_sentences": sum(len(split_into_sentences(line, "eng")) for line in lines),
    }
    whole = "{" not in text and "lorem ipsum" not in text.lower()
    return {
        **{f"gopher_datatrove.{name}": value for name, value in own.items()},
        **{f"fineweb_datatrove.{name}": value for name, value in fineweb.items()},
        # Without its two rules on whole documents, whose lines stay then: for texts that have neither mark.
        **{f"c4_datatrove.{name}": value for name, value in c4.items() if whole},
    }


def main() -> None:
    logger.remove()
    what, path = sys.argv[1:]
    _, texts = documents(path)
    answers = {
        "decisions": lambda: decisions(texts),
        "values": lambda: [values(text) for text in texts],
        "words": lambda: [split_into_words(text, "eng") for text in texts],
    }
    print(json.dumps(answers[what]()))


if __name__ == "__main__":
    main()
