"""`corpusmill robustness --context`: bits per byte of the second half of documents behind a first half that was perturbed.

What is scored is the same text each time. Perturbed text itself has another likelihood whatever a model makes of it; the text behind it
shows how much of what went before the model can still use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import library
from corpusmill.common.task_progress import advance
from corpusmill.schemas.robustness import ContextDrop, SourceContexts
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.evaluate.baselines import STRICT, all_blocks
from corpusmill.train.evaluate.progress import reported
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.splits import interval
from corpusmill.train.evaluate.statistics import compared, linearised

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from corpusmill.common.perturb import Perturbation
    from corpusmill.train.data.shards import Shards, Source
    from corpusmill.train.evaluate.scorer import Scorer

SHORTEST = 4  # tokens of a document that has two halves
AT_ONCE = 512  # documents that are scored together


class Halves(NamedTuple):
    """A document, or what of it fits into a row: the text of its first half, and the tokens and the bytes of the second one."""

    name: str
    before: str
    tokens: list[int]
    size: int


def contexts(
    scorer: Scorer,
    shards: Shards,
    perturbations: Sequence[Perturbation],
    seed: int,
    limit: int | None,
    rows: int = 16,
) -> dict[str, SourceContexts]:
    """Of each source's validation split. All processes together. Raises `UserError` for conversations, and if no document has two
    halves."""
    tokenizer, length = library(shards.tokenizer(), "tokenizer.json"), scorer.longest
    found = {}
    for name, source in shards.validation.items():
        if not source.index.ntokens:
            continue
        documents = list(halves(source, tokenizer, length))
        if limit is not None and limit < len(documents):
            documents = [documents[at * len(documents) // limit] for at in range(limit)]
        if documents:
            with reported(name, len(documents) * (1 + len(perturbations)), "documents"):
                found[name] = _of(
                    documents, scorer, tokenizer, source.index.eos_id, perturbations, seed, rows
                )
    if not found:
        raise UserError(f"--context: no document of a validation split has {SHORTEST} tokens")
    return found


def halves(source: Source, tokenizer: Tokenizer, length: int) -> Iterator[Halves]:
    """Of the documents of a split, those that end in one block. A half that begins or ends within a character is left out."""
    with closing(Blocks([source], STRICT)) as members:
        for number, block in enumerate(all_blocks(source)):
            if block.targets is not None:
                raise UserError("--context: is of texts, and the data are conversations: name --tasks")
            names = members.documents((0, number)).doc_ids
            ends = [*block.starts[1:].tolist(), len(block.tokens)]
            for name, start, end in zip(names, block.starts.tolist(), ends, strict=True):
                tokens = block.tokens[start : min(end, start + length)].tolist()
                text = tokens[:-1] if tokens[-1:] == [source.index.eos_id] else tokens
                if len(text) < SHORTEST:
                    continue
                middle = len(text) // 2
                before, behind = (tokenizer.decode(part) for part in (text[:middle], text[middle:]))
                if "\ufffd" not in before + behind and before:
                    yield Halves(name, before, text[middle:], len(behind.encode()))


def _of(
    documents: Sequence[Halves], scorer: Scorer, tokenizer: Tokenizer, eos: int, perturbations: Sequence[Perturbation], seed: int, rows: int
) -> SourceContexts:  # fmt: skip
    sizes = np.array([one.size for one in documents], dtype=np.float64)

    def bits(texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Of each document's second half behind a text, which is encoded alone."""
        found = []
        for low in range(0, len(texts), AT_ONCE):
            some = slice(low, low + AT_ONCE)
            encoded = tokenizer.encode_batch_fast(list(texts[some]), add_special_tokens=False)
            queries = [
                Query([eos, *before.ids], one.tokens)
                for before, one in zip(encoded, documents[some], strict=True)
            ]
            found += [-answer.sum / math.log(2) for answer in scorer.answers(queries, rows)]
            advance(len(queries))
        return np.array(found)

    plain = bits([one.before for one in documents])
    drops = []
    for by in perturbations:
        texts = [by.apply(one.before, one.name, seed) for one in documents]
        changed = sum(text != one.before for text, one in zip(texts, documents, strict=True))
        after = bits(texts)
        difference = compared(linearised(after, sizes), linearised(plain, sizes))
        perturbed = interval(after, sizes)
        assert perturbed is not None
        drops.append(
            ContextDrop(
                perturbation=by.name, changed=changed, perturbed=perturbed, difference=difference.estimate, p=difference.p
            )
        )  # fmt: skip
    as_it_is = interval(plain, sizes)
    assert as_it_is is not None
    return SourceContexts(
        documents=len(documents), bytes=int(sizes.sum()), bits_per_byte=as_it_is, perturbed=drops
    )
