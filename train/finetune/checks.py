"""Rewards of answers that a program can check (`reinforcement.rewards`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from corpusmill.schemas.reinforcement import RewardRule
from corpusmill.train.data.conversations.style import read_guide
from corpusmill.train.evaluate.metrics.style import satisfies

Check = Callable[[str, str], float]  # of an answer and the reference answer, from 0 to 1


def checks_of(rules: Sequence[RewardRule]) -> list[Check]:
    """Of each rule, in order. Raises what `read_guide` raises for a style guide that is not there."""
    return [_check(rule) for rule in rules]


def _check(rule: RewardRule) -> Check:
    if rule.style is not None:
        kept = read_guide(rule.style).rules
        return lambda answer, _: sum(satisfies(one, answer) for one in kept) / len(kept)
    if rule.matches is not None:
        whole = re.compile(rule.matches, re.DOTALL)
        return lambda answer, _: float(whole.fullmatch(answer.strip()) is not None)
    assert rule.answer is not None
    pattern = re.compile(rule.answer)

    def same(answer: str, reference: str) -> float:
        found, wanted = (last_match(pattern, text) for text in (answer, reference))
        return float(found is not None and found == wanted)

    return same


def last_match(pattern: re.Pattern[str], text: str) -> str | None:
    """The last match in a text, of a pattern with a group that group; None: no match, or one of nothing."""
    found = [match[1] if pattern.groups else match[0] for match in pattern.finditer(text)]
    return next((one for one in reversed(found) if one), None)
