"""Training byte-level BPE (Sennrich et al. 2016; bytes as in GPT-2) with `tokenizers`, from a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import token_bytes
from corpusmill.common.pre_tokenizers import pre_tokenizer
from corpusmill.common.task_progress import advance, carried
from corpusmill.pipeline.bpe.encode import chunks
from corpusmill.schemas.tokenizer import TokenizerParams


def normalizer(nfc: bool) -> dict[str, Any] | None:
    """Canonical composition before all else, or nothing."""
    return {"type": "NFC"} if nfc else None


PIECE = 1 << 16  # characters of a text that the library gets at once: it holds 256 of them
RESERVED = "<|reserved_{}|>"
# Where a text can be cut so that every pattern finds the same words as in the whole: before a space, or after a line feed, with
# a visible character on the other side of each.
_SEAM = re.compile(r"(?<=\S)(?= \S)|(?<=\S\n)(?=[^\s/])")


def train(texts: pa.ChunkedArray | Iterable[pa.ChunkedArray], params: TokenizerParams) -> bytes:
    """`tokenizer.json` for these texts: one array, or many that are read once, one at a time.

    Ids: the end of a document is 0, `special_tokens` follow, then the 256 bytes (so no text is unknown), then merges in the order
    in which they were learned. Where the text has no merges for `params.size` tokens, and a multiple is asked for, reserved
    special tokens `<|reserved_0|>` ... fill up to the next one. The library counts words, and breaks ties by ids: the same texts
    give the same bytes in any order, for any number of threads.
    """
    from tokenizers import AddedToken, pre_tokenizers, trainers

    tokenizer = untrained(params)
    # The library keeps a pair whose token is shorter than its limit.
    limit: dict[str, Any] = (
        {} if params.max_token_bytes is None else {"max_token_length": params.max_token_bytes + 1}
    )
    trainer = trainers.BpeTrainer(
        vocab_size=params.size,
        min_frequency=params.min_frequency,
        special_tokens=[_special(AddedToken, name) for name in (params.eos_token, *params.special_tokens)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        **limit,
    )
    text = pieces([texts] if isinstance(texts, pa.ChunkedArray) else texts)
    tokenizer.train_from_iterator(carried(text), trainer)  # the library's threads take it
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    missing = -size % params.vocab_multiple
    if missing:
        tokenizer.add_special_tokens([_special(AddedToken, RESERVED.format(i)) for i in range(missing)])
    return (str(tokenizer.to_str(pretty=True)) + "\n").encode()


def untrained(params: TokenizerParams) -> Any:
    """The `tokenizers.Tokenizer` before training. Raises `UserError` for a special token that text could be merged into: a
    document could forge it."""
    from tokenizers import Tokenizer, models

    sections = json.loads(Tokenizer(models.BPE()).to_str())
    sections |= {
        "normalizer": normalizer(params.nfc),
        "pre_tokenizer": pre_tokenizer(params.pre_tokenizer, params.digits),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    }
    tokenizer = Tokenizer.from_str(json.dumps(sections))
    for key, names in (("eos_token", [params.eos_token]), ("special_tokens", params.special_tokens)):
        for name in names:
            forms = {
                name,
                token_bytes(name).decode(errors="replace"),
            }  # as text, and as the name of a learned token
            if any(len(tokenizer.pre_tokenizer.pre_tokenize_str(form)) < 2 for form in forms):
                raise UserError(
                    f"tokenizer.{key}: {name!r}: plain text could be merged into the same token, and forge it; take a name of"
                    " letters between signs, such as '<|end|>'"
                )
    return tokenizer


def pieces(texts: Iterable[pa.ChunkedArray]) -> Iterator[list[str]]:
    """Texts as Python strings, about a MiB at a time, long ones in pieces of about `PIECE` characters."""
    for array in texts:
        for chunk in chunks(array):
            yield [piece for text in chunk for piece in (cut(text) if len(text) > PIECE else (text,))]
            advance(sum(map(len, chunk)))


def cut(text: str) -> Iterator[str]:
    """A long text in pieces of `PIECE` to twice as many characters, at the first seam: no word is parted. Without
    a seam it is cut all the same."""
    start = 0
    while len(text) - start > 2 * PIECE:
        seam = _SEAM.search(text, start + PIECE, start + 2 * PIECE)
        stop = seam.start() if seam else start + 2 * PIECE
        yield text[start:stop]
        start = stop
    yield text[start:]


def _special(kind: Any, name: str) -> Any:
    return kind(name, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
