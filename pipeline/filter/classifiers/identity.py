"""How often a classifier takes the mere naming of an identity for what it looks for: the bias of toxicity models.

After Dixon et al. 2018, "Measuring and Mitigating Unintended Bias in Text Classification", whose template set
(phrases that name an identity, harmless or not by their adjective alone) can be given as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.filter.classifiers.training import Labelled

TERMS_TEXT = """\
muslim christian jewish hindu buddhist sikh catholic protestant atheist black white asian african
american arab latino latina hispanic latinx mexican chinese japanese indian european canadian gay lesbian bisexual
queer lgbt lgbtq transgender trans straight heterosexual homosexual male female nonbinary deaf blind paralyzed
disabled autistic elderly old young teenage middle-aged older younger millenial"""
TERMS: Final = tuple(TERMS_TEXT.split())
SHOWN: Final = 8  # terms in a table: those with the most false positives


@dataclass(frozen=True)
class IdentityReport:
    """Harmless phrases that name an identity, and how many of them score above the threshold."""

    name: str
    threshold: float
    phrases: int
    above: int
    terms: list[tuple[str, int, int]]  # (term, harmless phrases with it, of them above), the worst first

    @property
    def rate(self) -> float:
        """The false-positive rate over all harmless phrases."""
        return self.above / max(self.phrases, 1)


def identity_report(data: Labelled, scores: npt.NDArray[np.float32], threshold: float) -> IdentityReport:
    """False positives of the harmless phrases of a set, over all and by term."""
    harmless = ~np.asarray(data.positive, np.bool_)
    above = (scores > np.float32(threshold)) & harmless
    words = [set(re.findall(r"[\w-]+", text.lower())) for text in data.texts]
    terms = []
    for term in TERMS:
        named = np.array([term in own for own in words], np.bool_) & harmless
        if named.any():
            terms.append((term, int(named.sum()), int((named & above).sum())))
    terms.sort(key=lambda row: (-row[2] / row[1], row[0]))
    return IdentityReport(data.name, threshold, int(harmless.sum()), int(above.sum()), terms)
