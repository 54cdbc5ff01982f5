"""A parsed page to its main text. What can be learned of a page's blocks is learned: `tools/train_main_text.py` makes the model, and
`model.md` says of what and how well it does on pages that it was not made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.pipeline.ingest.readers.main_text.assemble import assemble
from corpusmill.pipeline.ingest.readers.main_text.context import context
from corpusmill.pipeline.ingest.readers.main_text.features import features
from corpusmill.pipeline.ingest.readers.main_text.scan import B_CHARS, OWNER, PARENT, Scanned, scan
from corpusmill.pipeline.ingest.readers.main_text.trees import Model, load
from corpusmill.pipeline.ingest.readers.main_text.vocabulary import GROUPS

MAX_BLOCKS = 300_000  # of a page; what is known of each takes 2 kB
LEAST_CHANCE = 0.1  # of the best block of a page on which none reaches the model's threshold
# Comments below an article are not its text, however much they read like it; where they are nearly all text they are kept.
_COMMENT = np.uint64(1 << list(GROUPS).index("comment"))
COMMENT_LEVELS, COMMENT_NESTED = (
    8,
    2,
)  # of the elements above a block, and how many of them say that they are of comments
COMMENT_ELEMENTS = 4  # on the page: a section on comments, or a discussion of results, has fewer
ARTICLE_CHARS, ARTICLE_SHARE = 250, 0.2  # the least of other main text, and of all of it


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


def chosen(blocks: Blocks, found: npt.NDArray[np.float32], least: float) -> npt.NDArray[np.bool_]:
    """The blocks that are main text: those with a chance of `least` or more, without comments below an article."""
    taken = found >= least
    article = taken & ~_comments(blocks.page)
    chars = blocks.page.blocks[:, B_CHARS]
    enough = max(ARTICLE_CHARS, ARTICLE_SHARE * chars[taken].sum())
    return article if chars[article].sum() >= enough else taken


def _comments(page: Scanned) -> npt.NDArray[np.bool_]:
    """Which blocks stand in a thread of comments, as classes and ids say."""
    says = (page.node_words & _COMMENT) != 0
    nested = np.zeros(len(page.blocks), np.int64)
    if says.sum() >= COMMENT_ELEMENTS:
        node = page.blocks[:, OWNER].astype(np.int64)
        for _ in range(COMMENT_LEVELS):
            nested += (node >= 0) & says[node]
            node = np.where(node >= 0, page.nodes[node, PARENT], -1)
    return nested >= COMMENT_NESTED


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
    return assemble(blocks.data, blocks.page, chosen(blocks, found, least))
