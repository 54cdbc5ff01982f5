"""Tokens of a run: exact per source where it has shards, and the rate by which bytes of text are turned into tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from corpusmill.common.storage import Folder
from corpusmill.schemas.shards import INDEX, ShardSet

PER: Final = (
    1_000_000  # a rate is tokens in so many bytes, whole: sums of products do not depend on their order
)


@dataclass(frozen=True)
class TokenRates:
    """Tokens per `PER` bytes of text. `measured`: on every kept document (`shards`), or on the sample of the
    tokenizer's stage (`tokenizer`). `exact`: source -> tokens of the documents kept, where there are shards."""

    measured: Literal["shards", "tokenizer"]
    of: dict[str, int]
    overall: int  # for a source of which nothing was kept
    exact: dict[str, int]

    def rate(self, source: str) -> int:
        """Tokens in `PER` bytes of text of a source."""
        return self.of.get(source, self.overall)

    def rates(self, sources: list[str]) -> npt.NDArray[np.int64]:
        """int64[S]: the rate of each source."""
        return np.array([self.rate(source) for source in sources], np.int64)

    def estimate(self, source: str, size: int) -> int:
        """Tokens of `size` bytes of a source's text."""
        return tokens(self.rate(source) * size)


def tokens(product: int) -> int:
    """A sum of rates times bytes, in whole tokens."""
    return (2 * product + PER) // (2 * PER)


def token_rates(shards: Folder | None, tokenizer: Folder | None) -> TokenRates | None:
    """The rates of a run, from the folders of its stages; None where it has neither."""
    if shards is not None and (shards / INDEX).exists():
        sets = ShardSet.model_validate_json((shards / INDEX).read()).sets
        return _rates("shards", [(entry.source, entry.ntokens, entry.text_bytes) for entry in sets])
    if tokenizer is not None and (tokenizer / "stats.json").exists():
        measured = json.loads((tokenizer / "stats.json").read()).get("sources", {})
        return _rates("tokenizer", [(name, row["tokens"], row["bytes"]) for name, row in measured.items()])
    return None


def _rates(measured: Literal["shards", "tokenizer"], counts: list[tuple[str, int, int]]) -> TokenRates | None:
    """`counts`: (source, tokens, bytes of their text); a source may come several times, as its splits do."""
    of: dict[str, tuple[int, int]] = {}
    for source, ntokens, size in counts:
        before = of.get(source, (0, 0))
        of[source] = before[0] + ntokens, before[1] + size
    ntokens, size = (sum(pair[i] for pair in of.values()) for i in (0, 1))
    if not size:
        return None
    exact = {name: n for name, (n, _) in of.items()} if measured == "shards" else {}
    rates = {name: round(PER * n / total) for name, (n, total) in of.items() if total}
    return TokenRates(measured, rates, round(PER * ntokens / size), exact)
