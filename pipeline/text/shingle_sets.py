"""Shingles as deduplication takes them (`dedup.shingle`, `ngram`, `preset`), for other stages: the door to its sets.

`Shingling(params, 0).sets(text, rows)` gives the sorted distinct 64-bit shingle hashes of texts. `RULE` is the
version of the word rule.
"""

from __future__ import annotations

from corpusmill.pipeline.text.shingles import one_array
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.pipeline.text.word_rule import RULE

__all__ = ["RULE", "Shingling", "one_array"]
