"""Training by the library's own trainers, from the texts as strings: what ours is held to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from corpusmill.common.hugging_face import alphabet
from corpusmill.pipeline.bpe.encode import chunks
from corpusmill.pipeline.tokenizer import train as module
from corpusmill.pipeline.tokenizer.train import CONTINUES, RESERVED, cut, untrained
from corpusmill.schemas.tokenizer import TokenizerParams


def by_library(texts: Iterable[pa.ChunkedArray], params: TokenizerParams) -> bytes:
    """`tokenizer.json` of BPE or WordPiece."""
    from tokenizers import Tokenizer, trainers

    tokenizer, letters = untrained(params), sorted(alphabet())
    special = [_special(name) for name in (params.eos_token, *params.special_tokens)]
    options: dict[str, Any] = {
        "vocab_size": params.size, "min_frequency": params.min_frequency, "initial_alphabet": letters, "show_progress": False,
    }  # fmt: skip
    if params.model == "bpe":
        if (
            params.max_token_bytes is not None
        ):  # the library keeps a pair whose token is shorter than its limit
            options["max_token_length"] = params.max_token_bytes + 1
        trainer: Any = trainers.BpeTrainer(special_tokens=special, **options)
    else:
        within = [_special(CONTINUES + letter) for letter in letters]
        trainer = trainers.WordPieceTrainer(
            special_tokens=[*special, *within], continuing_subword_prefix=CONTINUES, **options
        )
    tokenizer.train_from_iterator(pieces(texts), trainer)
    if params.model == "wordpiece":  # bytes within words are tokens like others
        content = json.loads(tokenizer.to_str())
        content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < len(special)]
        tokenizer = Tokenizer.from_str(json.dumps(content))
    missing = -tokenizer.get_vocab_size(with_added_tokens=True) % params.vocab_multiple
    if missing:
        tokenizer.add_special_tokens([_special(RESERVED.format(i)) for i in range(missing)])
    return (str(tokenizer.to_str(pretty=True)) + "\n").encode()


def pieces(texts: Iterable[pa.ChunkedArray]) -> Iterator[list[str]]:
    """Texts as strings, long ones in pieces."""
    for array in texts:
        for chunk in chunks(array):
            yield [piece for text in chunk for piece in (cut(text) if len(text) > module.PIECE else (text,))]


def _special(name: str) -> Any:
    from tokenizers import AddedToken

    return AddedToken(name, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
