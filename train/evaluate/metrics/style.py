"""Style guides as a metric of texts: how many of them satisfy each rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from corpusmill.schemas.style import Rule, RuleResult, StyleGuide, StyleReport
from corpusmill.train.evaluate.statistics import estimate

EXAMPLES = 5  # texts that break a rule, of which the report has the numbers
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)")
MARKDOWN = re.compile(r"(^|\n)(#{1,6} |[-*+] |\d+\. |> |```)|\*\*|__|\[[^\]]*\]\(|`")
ITEM = re.compile(r"\s*([-*+•]|\d+[.)])\s+\S")


def satisfies(rule: Rule, text: str) -> bool:
    """Whether a text keeps a rule. White space around it does not count."""
    return CHECKS[rule.kind](text.strip(), getattr(rule, rule.kind))


def words(text: str) -> list[str]:
    return WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Parts that end with a full stop, a question or exclamation mark, and what is left."""
    parts = [part.strip() for part in END.split(text)]
    return [part for part in parts if words(part)]


def has(text: str, phrase: str) -> bool:
    """Whether a phrase stands in a text, in any case, and not inside a word."""
    before, after = (r"(?<!\w)" if phrase[0].isalnum() else "", r"(?!\w)" if phrase[-1].isalnum() else "")
    return re.search(before + re.escape(phrase) + after, text, re.IGNORECASE) is not None


def grade(text: str) -> float:
    """Reading level in school years, from letters and sentences per hundred words (Coleman and Liau 1975); 0 of no text."""
    found = words(text)
    if not found:
        return 0.0
    letters = sum(character.isalnum() for word in found for character in word)
    return (
        0.0588 * 100 * letters / len(found) - 0.296 * 100 * max(len(sentences(text)), 1) / len(found) - 15.8
    )


def _case(text: str, wanted: str) -> bool:
    if wanted == "lower":
        return text == text.lower()
    if wanted == "upper":
        return text == text.upper()
    firsts = (next((c for c in part if c.isalnum()), "A") for part in sentences(text))
    return all(first == first.upper() for first in firsts)


def _format(text: str, wanted: str) -> bool:
    if wanted == "plain":
        return MARKDOWN.search(text) is None
    if wanted == "list":
        lines = [line for line in text.splitlines() if line.strip()]
        return bool(lines) and all(ITEM.match(line) for line in lines)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


CHECKS: dict[str, Callable[[str, Any], bool]] = {
    "max_words": lambda text, most: len(words(text)) <= most,
    "min_words": lambda text, least: len(words(text)) >= least,
    "max_sentences": lambda text, most: len(sentences(text)) <= most,
    "forbidden": lambda text, phrases: not any(has(text, one) for one in phrases),
    "required": lambda text, phrases: any(has(text, one) for one in phrases),
    "begins_with": lambda text, start: text.startswith(start),
    "ends_with": lambda text, end: text.endswith(end),
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "case": _case,
    "format": _format,
    "max_grade": lambda text, most: grade(text) <= most,
}


def adherence(guide: StyleGuide, texts: Sequence[str]) -> StyleReport:
    """The share of texts that keep each rule, with Wilson's interval. Raises `ValueError` without a text."""
    kept = {rule.id: [satisfies(rule, text) for text in texts] for rule in guide.rules}
    every = [float(all(row)) for row in zip(*kept.values(), strict=True)]
    return StyleReport(
        guide=guide.name, texts=len(texts), all_rules=estimate(every, proportion=True),
        rules=[
            RuleResult(
                id=rule.id, kind=rule.kind, kept=estimate([float(one) for one in kept[rule.id]], proportion=True),
                broken=[number for number, one in enumerate(kept[rule.id]) if not one][:EXAMPLES],
            )
            for rule in guide.rules
        ],
    )  # fmt: skip
