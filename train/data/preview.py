"""Documents of a set made of conversations, in parts that are labels and parts that are not: what a user looks at before training."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from corpusmill.common.hugging_face import library
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.shards import Target
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.shards import Shards


class Previewed(NamedTuple):
    """`parts`: text and the name of its `Target`, in their order. A character that two parts share shows as U+FFFD in both."""

    source: str
    doc_id: str
    parts: list[tuple[str, str]]


def previewed(shards: Shards, count: int) -> list[Previewed]:
    """The first `count` documents of the train splits, without the padding of their rows."""
    tokenizer = library(shards.tokenizer(), str(shards.folder / shards.set.tokenizer))
    found: list[Previewed] = []
    for source in shards.train.values():
        with closing(Blocks([source], FetchConfig())) as blocks:
            for number in range(len(source.blocks)):
                data, about = blocks.get([(0, number)])[0, number], blocks.documents((0, number))
                kinds = np.zeros_like(data.tokens, dtype=np.uint8) if data.targets is None else data.targets
                edges = [*data.starts.tolist(), len(data.tokens)]
                for name, low, high in zip(about.doc_ids, edges[:-1], edges[1:], strict=True):
                    if len(found) == count:
                        return found
                    tokens, targets = data.tokens[low:high], kinds[low:high]
                    changes = [0, *(np.flatnonzero(np.diff(targets)) + 1).tolist(), len(tokens)]
                    parts = []
                    for begin, end in pairwise(changes):
                        kind, own = Target(int(targets[begin])), tokens[begin:end].tolist()
                        if kind == Target.context:
                            own = _unpadded(own, shards.set.eos_id)
                        parts.append((tokenizer.decode(own, skip_special_tokens=False), kind.name))
                    found.append(Previewed(source.name, name, [part for part in parts if part[0]]))
    return found


def _unpadded(tokens: list[int], eos: int) -> list[int]:
    """Without ends of documents at either side."""
    while tokens and tokens[0] == eos:
        tokens = tokens[1:]
    while tokens and tokens[-1] == eos:
        tokens = tokens[:-1]
    return tokens
