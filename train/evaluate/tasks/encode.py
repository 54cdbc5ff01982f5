"""Contexts and continuations as token ids, exactly as lm-evaluation-harness splits them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from corpusmill.train.evaluate.rows import Query

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Pair = tuple[str, str]  # context, continuation
BATCH = 4096  # texts that are encoded at once


class Encoder:
    """Of a run's tokenizer. `eos_id`: the end-of-text token, which stands for an empty context as it does in training."""

    def __init__(self, tokenizer: Tokenizer, eos_id: int) -> None:
        self.tokenizer, self.eos_id = tokenizer, eos_id

    def ids(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """The ids of each text, without special tokens."""
        unique = list(dict.fromkeys(texts))
        found: dict[str, list[int]] = {}
        for start in range(0, len(unique), BATCH):
            part = unique[start : start + BATCH]
            encoded = self.tokenizer.encode_batch_fast(part, add_special_tokens=False)
            found.update(zip(part, (one.ids for one in encoded), strict=True))
        return found

    def queries(self, pairs: Sequence[Pair]) -> list[Query]:
        """The pairs as ids; a continuation that has no token of its own is empty.

        White space at the end of a context is the beginning of its continuation. The continuation's tokens are those of the
        whole text that come after as many as the context alone has.
        """
        split = [moved(*pair) for pair in pairs]
        ids = self.ids(text for context, rest in split for text in (context, context + rest))
        found = []
        for context, rest in split:
            whole = ids[context + rest]
            if context:
                count = len(ids[context])
                found.append(Query(ids[context], whole[count:]))
            elif whole[:1] == [self.eos_id]:
                found.append(Query(whole[:1], whole[1:]))
            else:
                found.append(Query([self.eos_id], whole))
        return found

    def windows(self, text: str, longest: int, stride: int | None = None) -> list[Query]:
        """A whole text as queries that score each of its tokens once, as lm-evaluation-harness cuts it: the first `longest` tokens
        after the end-of-text token, then `stride` at a time (all `longest`), after as many as the model can also read."""
        ids = self.ids([text])[text]
        found = [Query([self.eos_id], ids[:longest])] if ids else []
        for start in range(longest, len(ids), min(stride or longest, longest)):
            end = min(start + min(stride or longest, longest), len(ids))
            found.append(Query(ids[end - longest - 1 : start], ids[start:end]))
        return found


def moved(context: str, continuation: str) -> Pair:
    """The pair with the white space at the end of the context moved to the continuation."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation
