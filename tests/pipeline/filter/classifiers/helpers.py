"""Labelled texts that a classifier learns in a second."""

from __future__ import annotations

import random

from corpusmill.pipeline.filter.classifiers.labelled import Labelled


def made_set(seed: int, count: int = 300) -> Labelled:
    """Invitations and reports; positive where it is an invitation to buy."""
    rng = random.Random(seed)
    kinds = ["buy cheap win cash prize now free", "river bridge council winter school letter road"]
    words = [[word + end for word in kind.split() for end in ("", "s", "er", "ly", "ing")] for kind in kinds]
    texts, labels = [], []
    for _ in range(count):
        spam = rng.random() < 0.5
        texts.append(" ".join(rng.choice(words[0 if spam else 1]) for _ in range(rng.randint(5, 30))))
        labels.append(spam)
    return Labelled("made", texts, labels)
