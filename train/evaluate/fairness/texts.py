"""Bits per byte by group: of texts, such as those of dialects, each alone and from its beginning; and of the sources' validation splits,
as `evaluate` scores them, with an interval over documents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.schemas.fairness import TextGroup
from corpusmill.train.data.pack import whole_block
from corpusmill.train.data.trained import read, spread
from corpusmill.train.evaluate.baselines import STRICT
from corpusmill.train.evaluate.batches import tensors
from corpusmill.train.evaluate.resampling import Floats, bootstrapped
from corpusmill.train.evaluate.rows import Query

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from corpusmill.common.token_text import TokenText
    from corpusmill.train.data.fetch import BlockData
    from corpusmill.train.data.shards import Source
    from corpusmill.train.evaluate.scorer import Scorer


def token_losses(scorer: Scorer, texts: Sequence[Sequence[int]], eos: int) -> list[Floats]:
    """The loss of each token of each text in nats, float64; a text begins after the end-of-text token. One that is longer than the
    model's positions is cut into windows that do not overlap, each after the last token of the one before."""
    queries, owner = list[Query](), list[int]()
    for number, tokens in enumerate(texts):
        for start in range(0, len(tokens), scorer.longest):
            before = tokens[start - 1] if start else eos
            queries.append(Query([before], tokens[start : start + scorer.longest]))
            owner.append(number)
    parts: list[list[Floats]] = [[] for _ in texts]
    for number, answer in zip(owner, scorer.answers(queries) if queries else [], strict=True):
        parts[number].append(-answer.tokens.astype(np.float64))
    return [np.concatenate(own) if own else np.empty(0) for own in parts]


def by_group(
    scorer: Scorer, tokenizer: Tokenizer, eos: int, texts: Sequence[str], groups: Sequence[str]
) -> dict[str, TextGroup]:
    """Bits per byte of each group, with a bootstrap over its texts. Raises `UserError` for a text without a token."""
    tokens = [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
    for number, ids in enumerate(tokens, 1):
        if not ids:
            raise UserError(f"--texts: text {number} has no token")
    losses = token_losses(scorer, tokens, eos)
    sums = np.array(
        [[own.sum() / math.log(2), len(text.encode())] for own, text in zip(losses, texts, strict=True)]
    )
    found = {}
    for group in sorted(set(groups)):
        mine = sums[[own == group for own in groups]]
        found[group] = TextGroup(
            texts=len(mine), bytes=int(mine[:, 1].sum()), bits_per_byte=bootstrapped(mine, bits_per_byte, len(mine))
        )  # fmt: skip
    return found


def by_source(
    scorer: Scorer, sources: Mapping[str, Source], words: TokenText, most: int
) -> dict[str, TextGroup]:
    """Bits per byte of each split, with a bootstrap over its documents; of those in blocks spread evenly over it if it has more
    than `most` tokens. Every token counts, also the ends of documents; rows begin as in `evaluate`."""
    found = {}
    for name, source in sources.items():
        parts = [document_sums(scorer, source, block, words) for block in sampled(source, most)]
        if parts:
            sums = np.concatenate(parts)
            found[name] = TextGroup(
                texts=len(sums), bytes=round(float(sums[:, 1].sum())), bits_per_byte=bootstrapped(sums, bits_per_byte, len(sums))
            )  # fmt: skip
    return found


def sampled(source: Source, most: int) -> Iterator[BlockData]:
    """The blocks of a split that have tokens; some spread evenly over it, if they are more than `most`."""
    sizes = np.array([block.ntokens for _, block in source.blocks], dtype=np.int64)
    return read([source], [(0, number) for number in spread(sizes, most).tolist() if sizes[number]], STRICT)


def document_sums(scorer: Scorer, source: Source, block: BlockData, words: TokenText) -> Floats:
    """Bits and bytes of each document (or its part) in a block, float64 [documents, 2]; of those that a fold holds out, if there is
    one. Bytes of a tokenizer that is not byte-level are the source's mean."""
    rows, size = whole_block(block, scorer.longest, source.index.eos_id), scorer.config.data.micro_batch
    batches = [
        tensors(rows, first, min(first + size, len(rows.tokens)))
        for first in range(0, len(rows.tokens), size)
    ]
    losses = np.concatenate([one.abs().double().numpy().ravel() for one in scorer.losses(batches)])[
        : len(block.tokens)
    ]
    if words.byte_level:
        kinds, places = np.unique(block.tokens, return_inverse=True)
        sizes = np.array([len(words.bytes_of(token)) for token in kinds.tolist()], dtype=np.float64)[places]
    else:
        sizes = np.full(len(block.tokens), source.index.text_bytes / source.index.ntokens)
    columns = [np.add.reduceat(values, block.starts) for values in (losses / math.log(2), sizes)]
    found = np.stack(columns, axis=1)
    return found if block.held is None else found[block.held]


def bits_per_byte(sums: Floats) -> Floats:
    """Of sums [..., 2] of bits and bytes."""
    found: Floats = sums[..., 0] / sums[..., 1]
    return found
