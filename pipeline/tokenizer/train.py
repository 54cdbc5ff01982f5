"""Training byte-level BPE (Sennrich et al. 2016; bytes as in GPT-2) and WordPiece (Schuster and Nakajima 2012) by merges (`merges/`), and
Unigram (`unigram/`), from the words of a stream of texts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import alphabet, token_bytes
from corpusmill.common.pre_tokenizers import pre_tokenizer, shortened
from corpusmill.pipeline.tokenizer.merges.learn import learn as learn_merges_of
from corpusmill.pipeline.tokenizer.words import Words, counted, shortened_words
from corpusmill.schemas.tokenizer import TokenizerParams


def normalizer(nfc: bool) -> dict[str, Any] | None:
    """Canonical composition before all else, or nothing."""
    return {"type": "NFC"} if nfc else None


PIECE = 1 << 16  # characters of a text that is cut, at least
MOST_THREADS = 16  # that count words, each with a table of its own
RESERVED = "<|reserved_{}|>"
# Where a text can be cut so that every pattern finds the same words as in the whole: before a space, or after a line feed, with
# a visible character on the other side of each.
_SEAM = re.compile(r"(?<=\S)(?= \S)|(?<=\S\n)(?=[^\s/])")


CONTINUES = "⋯"  # before the names of WordPiece's tokens within a word: no byte's stand-in, so that no text has such a name
WORD_BYTES = 100  # of a word that WordPiece looks up at once: what is longer is cut, where the library would lose it as unknown


def train(texts: pa.ChunkedArray | Iterable[pa.ChunkedArray], params: TokenizerParams) -> bytes:
    """`tokenizer.json` for these texts: one array, or many that are read once, one at a time. See `learned`."""
    arrays = [texts] if isinstance(texts, pa.ChunkedArray) else texts
    return learned(words_of(arrays, params, min(os.cpu_count() or 1, MOST_THREADS)), params)


def words_of(texts: Iterable[pa.ChunkedArray], params: TokenizerParams, threads: int = 1) -> Words:
    """The words of texts, which are read once, as the tokenizer's model learns from them."""
    whole = untrained(params)
    content = json.loads(whole.to_str()) | {
        "pre_tokenizer": pre_tokenizer(params.pre_tokenizer, params.digits)
    }
    arrays = texts if params.model == "unigram" else map(parted, texts)
    return counted(arrays, content, whole, threads)


def learned(words: Words, params: TokenizerParams) -> bytes:
    """`tokenizer.json` for counted words (`words_of`).

    Ids: the end of a document is 0, `special_tokens` follow, then the 256 bytes (so no text is unknown; for WordPiece those within
    a word before those that begin one), then what was learned: merges in their order, Unigram's pieces by their probability. Where
    the text has not enough for `params.size` tokens, and a multiple is asked for, reserved special tokens `<|reserved_0|>` ... fill
    up to the next one. The same words give the same bytes in any order. BPE and WordPiece are those of the library's trainers.
    """
    from tokenizers import AddedToken, Tokenizer

    content = json.loads(untrained(params).to_str())
    content["model"] |= {"bpe": _bpe, "unigram": _unigram, "wordpiece": _wordpiece}[params.model](
        words, params
    )
    tokenizer = Tokenizer.from_str(json.dumps(content))
    names = [params.eos_token, *params.special_tokens]
    tokenizer.add_special_tokens([_special(AddedToken, name) for name in names])
    missing = -tokenizer.get_vocab_size(with_added_tokens=True) % params.vocab_multiple
    if missing:
        tokenizer.add_special_tokens([_special(AddedToken, RESERVED.format(i)) for i in range(missing)])
    return (str(tokenizer.to_str(pretty=True)) + "\n").encode()


def _bpe(words: Words, params: TokenizerParams) -> dict[str, Any]:
    names = [params.eos_token, *params.special_tokens]
    found = learn_merges_of(words, names, params.size, params.min_frequency, params.max_token_bytes)
    return {"vocab": {name: i for i, name in enumerate(found.vocabulary)}, "merges": found.merges}


def _wordpiece(words: Words, params: TokenizerParams) -> dict[str, Any]:
    """As the library trains it: by BPE's merges, of which the vocabulary alone is kept.

    The library numbers the bytes within words in the order in which it meets them, which is another in every process, and breaks
    ties by these numbers (huggingface/tokenizers#1794). Here all of them are numbered beforehand.
    """
    names = [params.eos_token, *params.special_tokens]
    found = learn_merges_of(
        shortened_words(words, WORD_BYTES), names, params.size, params.min_frequency, None, CONTINUES
    )
    return {"vocab": {name: i for i, name in enumerate(found.vocabulary)}}


def _unigram(words: Words, params: TokenizerParams) -> dict[str, Any]:
    from corpusmill.pipeline.tokenizer.unigram.learn import learn

    names = [params.eos_token, *params.special_tokens]
    scores = learn(words.in_order(), params.size - len(names), params.max_token_bytes)
    stands_for = {byte: letter for letter, byte in alphabet().items()}
    letters = sorted(alphabet())
    pieces = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: (-scores[piece], piece))
    lowest = min(scores.values())
    return {
        "type": "Unigram", "unk_id": None, "byte_fallback": False,
        "vocab": [
            *([name, 2 * lowest * len(name.encode())] for name in names),  # less likely than its own bytes
            *([letter, scores[bytes([alphabet()[letter]])]] for letter in letters),
            *(["".join(stands_for[byte] for byte in piece), scores[piece]] for piece in pieces),
        ],
    }  # fmt: skip


def untrained(params: TokenizerParams) -> Any:
    """The `tokenizers.Tokenizer` before training. Raises `UserError` for a special token that text could be merged into: a
    document could forge it."""
    from tokenizers import Tokenizer, models

    kinds: dict[str, Any] = {"bpe": models.BPE, "unigram": models.Unigram, "wordpiece": models.WordPiece}
    sections = json.loads(Tokenizer(kinds[params.model]()).to_str())
    sections |= {
        "normalizer": normalizer(params.nfc),
        "pre_tokenizer": pre_tokenizer(params.pre_tokenizer, params.digits),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    }
    if params.model == "wordpiece":
        sections["model"] |= {"continuing_subword_prefix": CONTINUES, "max_input_chars_per_word": WORD_BYTES}
        sections["pre_tokenizer"] = shortened(sections["pre_tokenizer"], WORD_BYTES)
        without = {"type": "Replace", "pattern": {"String": CONTINUES}, "content": ""}
        sections["decoder"] = {"type": "Sequence", "decoders": [without, sections["decoder"]]}
    tokenizer = Tokenizer.from_str(json.dumps(sections))
    for key, names in (("eos_token", [params.eos_token]), ("special_tokens", params.special_tokens)):
        for name in names:
            if params.model == "wordpiece" and CONTINUES in name:
                raise UserError(
                    f"tokenizer.{key}: {name!r}: WordPiece marks tokens within words by '{CONTINUES}'; take a name without it"
                )
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


def parted(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same texts, of which those that `cut` parts within a word are in its pieces, as the library was given them."""
    long = np.flatnonzero(pc.binary_length(texts).to_numpy() > 2 * PIECE).tolist()
    parts, start = list[pa.ChunkedArray](), 0
    for row in long:
        text = texts[row].as_py()
        if not all(map(_whole, pairwise(cut(text)))):
            pieces = pa.chunked_array([pa.array(list(cut(text)), texts.type)])
            parts, start = [*parts, texts.slice(start, row - start), pieces], row + 1
    if not parts:
        return texts
    return pa.chunked_array(
        [chunk for part in [*parts, texts.slice(start)] for chunk in part.chunks], texts.type
    )


def _whole(pieces: tuple[str, str]) -> bool:
    """Whether two neighbouring pieces of a text meet at a seam."""
    before, behind = pieces
    return _SEAM.match(before[-2:] + behind[:2], len(before[-2:])) is not None


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
