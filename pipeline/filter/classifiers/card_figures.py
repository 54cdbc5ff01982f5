"""The figures in a classifier's card (`building.model_card`), for a threshold: how right the model is, as far as is known."""

from __future__ import annotations

import re

from corpusmill.schemas.fairness import ClassifierError


def errors(card: str, threshold: float) -> list[ClassifierError]:
    """Of each set for which the card has a table by threshold with this one, and of kinds of text that it was tried on without
    training on them; none where the card says nothing."""
    first: dict[str, tuple[int, int]] = {}  # of a set: as it was trained on
    last: dict[str, tuple[int, int]] = {}  # its held-out part
    rows = re.findall(r"^\| ([^|]+?) \| ([\d,]+) \| ([\d,]+) \|", card, re.MULTILINE)
    for name, texts, positives in rows:
        last[name] = (_count(texts), _count(positives))
        first.setdefault(name, last[name])
    found = []
    for name, table in re.findall(r"^By threshold, (.+):\n\n((?:\|.*\n)+)", card, re.MULTILINE):
        for line in table.splitlines()[2:]:
            above, precision, recall, wrong, _ = (cell.strip() for cell in line.strip("|").split("|"))
            if float(above) == threshold and name in last:
                found.append(_error(name, last[name], precision, recall, wrong))
    kind = r"^- (\S+): AUC \S+ on all ([\d,]+) texts; (.*)\.$"
    for name, texts, rest in re.findall(kind, card, re.MULTILINE):
        at = re.search(rf"above {re.escape(f'{threshold:g}')} precision (\S+) and recall ([\d.]+)", rest)
        if at:
            size = (_count(texts), first.get(name, (0, 0))[1])
            found.append(_error(f"{name}, by the same recipe without it", size, at[1], at[2], "–"))
    return found


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _error(name: str, size: tuple[int, int], *figures: str) -> ClassifierError:
    precision, recall, wrong = (None if cell == "–" else float(cell) for cell in figures)
    return ClassifierError(
        name=name, texts=size[0], positives=size[1], precision=precision, recall=recall, false_positive_rate=wrong
    )  # fmt: skip
