"""Training byte-level BPE (Sennrich et al. 2016; bytes as in GPT-2) and WordPiece (Schuster and Nakajima 2012) with `tokenizers`, and
Unigram (`unigram/`), from a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import alphabet, token_bytes
from corpusmill.common.pre_tokenizers import pre_tokenizer, shortened
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


CONTINUES = "⋯"  # before the names of WordPiece's tokens within a word: no byte's stand-in, so that no text has such a name
WORD_BYTES = 100  # of a word that WordPiece looks up at once: what is longer is cut, where the library would lose it as unknown


def train(texts: pa.ChunkedArray | Iterable[pa.ChunkedArray], params: TokenizerParams) -> bytes:
    """`tokenizer.json` for these texts: one array, or many that are read once, one at a time.

    Ids: the end of a document is 0, `special_tokens` follow, then the 256 bytes (so no text is unknown; for WordPiece those within
    a word before those that begin one), then what was learned: merges in their order, Unigram's pieces by their probability. Where
    the text has not enough for `params.size` tokens, and a multiple is asked for, reserved special tokens `<|reserved_0|>` ... fill
    up to the next one. The same texts give the same bytes in any order, for any number of threads: the library counts words, and
    breaks ties by ids.
    """
    from tokenizers import AddedToken

    arrays = [texts] if isinstance(texts, pa.ChunkedArray) else texts
    tokenizer = {"bpe": _bpe, "unigram": _unigram, "wordpiece": _wordpiece}[params.model](arrays, params)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    missing = -size % params.vocab_multiple
    if missing:
        tokenizer.add_special_tokens([_special(AddedToken, RESERVED.format(i)) for i in range(missing)])
    return (str(tokenizer.to_str(pretty=True)) + "\n").encode()


def _bpe(texts: Iterable[pa.ChunkedArray], params: TokenizerParams) -> Any:
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
    tokenizer.train_from_iterator(carried(pieces(texts)), trainer)  # the library's threads take it
    return tokenizer


def _wordpiece(texts: Iterable[pa.ChunkedArray], params: TokenizerParams) -> Any:
    """As the library trains it: by BPE's merges, of which the vocabulary alone is kept.

    The library numbers the bytes within words in the order in which it meets them, which is another in every process, and breaks
    ties by these numbers (huggingface/tokenizers#1794). Given as special tokens, all of them are numbered beforehand; afterwards
    they are tokens like others.
    """
    from tokenizers import AddedToken, Tokenizer, trainers

    tokenizer, letters = untrained(params), sorted(alphabet())
    special = [_special(AddedToken, name) for name in (params.eos_token, *params.special_tokens)]
    within = [AddedToken(CONTINUES + letter, normalized=False, special=True) for letter in letters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=params.size,
        min_frequency=params.min_frequency,
        special_tokens=[*special, *within],
        initial_alphabet=letters,
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    tokenizer.train_from_iterator(carried(pieces(texts)), trainer)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < len(special)]
    return Tokenizer.from_str(json.dumps(content))


def _unigram(texts: Iterable[pa.ChunkedArray], params: TokenizerParams) -> Any:
    from tokenizers import AddedToken, Tokenizer

    from corpusmill.pipeline.tokenizer.unigram.learn import learn
    from corpusmill.pipeline.tokenizer.words import count_words

    tokenizer = untrained(params)
    content = json.loads(tokenizer.to_str())
    names = [params.eos_token, *params.special_tokens]
    words = count_words(texts, content, tokenizer)
    scores = learn(words, params.size - len(names), params.max_token_bytes)
    stands_for = {byte: letter for letter, byte in alphabet().items()}
    letters = sorted(alphabet())
    learned = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: (-scores[piece], piece))
    lowest = min(scores.values())
    content["model"] = {
        "type": "Unigram", "unk_id": None, "byte_fallback": False,
        "vocab": [
            *([name, 2 * lowest * len(name.encode())] for name in names),  # less likely than its own bytes
            *([letter, scores[bytes([alphabet()[letter]])]] for letter in letters),
            *(["".join(stands_for[byte] for byte in piece), scores[piece]] for piece in learned),
        ],
    }  # fmt: skip
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_special_tokens([_special(AddedToken, name) for name in names])
    return tokenizer


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
