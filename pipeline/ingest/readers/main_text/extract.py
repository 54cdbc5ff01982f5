"""A parsed page to its main text. What can be learned of a page's blocks is learned: `tools/train_main_text.py` makes the model, and
`model.md` says of what and how well it does on pages that it was not made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.ingest.readers.main_text.assemble import assemble
from corpusmill.pipeline.ingest.readers.main_text.context import context
from corpusmill.pipeline.ingest.readers.main_text.features import features
from corpusmill.pipeline.ingest.readers.main_text.scan import Scanned, scan
from corpusmill.pipeline.ingest.readers.main_text.trees import Model, load

MAX_BLOCKS = 300_000  # of a page; what is known of each takes 2 kB
LEAST_CHANCE = 0.1  # of the best block of a page on which none reaches the model's threshold


class TooManyBlocks(ValueError):
    """The page has more blocks of text than any page has."""


class Blocks(NamedTuple):
    """A page's serialised bytes, what the scanner found in them, and the features of each block."""

    data: npt.NDArray[np.uint8]
    page: Scanned
    features: npt.NDArray[np.float32]


def blocks_of(tree: Any) -> Blocks:
    """The blocks of a `resiliparse.parse.html.HTMLTree`. Raises `TooManyBlocks` for more than `MAX_BLOCKS`."""
    body = tree.body
    data = np.frombuffer((body.html if body is not None else "").encode("utf-8", "replace"), np.uint8)
    page = scan(data)
    if len(page.blocks) > MAX_BLOCKS:
        raise TooManyBlocks(f"{len(page.blocks)} blocks of text; allowed are {MAX_BLOCKS}")
    return Blocks(data, page, features(page))


def chances(blocks: Blocks, model: Model, twice: bool = True) -> npt.NDArray[np.float32]:
    """How likely each block is main text, float32[blocks]; `twice`: with what the first look made of its surroundings."""
    first = model.first(blocks.features)
    if not twice:
        return first
    return model.second(np.hstack([blocks.features, context(blocks.page, first)]))


def main_text(tree: Any, twice: bool = True) -> str:
    """The main text of a parsed page; "" if it has none.

    Raises `TooManyBlocks`. Takes time in proportion to the page. `twice=False` looks at each block once, which is a little faster and worse.
    """
    blocks = blocks_of(tree)
    if not len(blocks.features):
        return ""
    model = load()
    found = chances(blocks, model, twice)
    best = float(found.max())
    least = model.threshold if best >= model.threshold or best < LEAST_CHANCE else best / 2
    return assemble(blocks.data, blocks.page, found >= least)
