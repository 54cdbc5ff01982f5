"""The kinds of tokenizers that are compared: each trained on the same texts, and encoding texts to ids that tile their bytes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.pipeline.bpe.encode import coming_back, encode
from corpusmill.pipeline.bpe.load import load_bpe
from corpusmill.pipeline.bpe.texts import View, views
from corpusmill.pipeline.tokenizer.train import train, untrained
from corpusmill.pipeline.tokenizer.words import count_words, cut_words, reading_of
from corpusmill.schemas.tokenizer import BYTES, Kind, Model, TokenizerParams

Ids = npt.NDArray[np.unsignedinteger[Any]]
I64 = npt.NDArray[np.int64]
END, UNKNOWN = (
    0,
    1,
)  # ids of those without a tokenizer.json: the end of a document, what is not in the vocabulary
CODE_POINTS = 0x110000
LEARNED: tuple[Kind, ...] = get_args(Model)
_LOADED = count()  # makes each load another one, with nothing kept of texts encoded before


class Trained(ABC):
    """A tokenizer. `vocab_size`: the end of a document and the unknown token among them; `unknown`: its id, if it has one."""

    vocab_size: int
    unknown: int | None = None

    @abstractmethod
    def encode(self, view: View) -> Ids:
        """The tokens of a view's texts, one after the other."""

    @abstractmethod
    def lengths(self, view: View, ids: Ids) -> I64:
        """Bytes of text that each of a view's tokens stands for, an unknown one too."""

    def reversible(self, view: View, ids: Ids) -> bool:
        """Whether the texts come back from their tokens."""
        return self.unknown is None or not bool((ids == self.unknown).any())

    def forget(self) -> None:  # noqa: B027  (most have nothing to forget)
        """Keep nothing of texts that were encoded before: they would be faster a second time."""

    def file(self) -> bytes | None:
        """Its `tokenizer.json`, if the stages can encode with it."""
        return None


class Learned(Trained):
    """BPE, Unigram or WordPiece, as the stages use them."""

    def __init__(self, texts: pa.ChunkedArray, params: TokenizerParams) -> None:
        self._data, self._end = train(texts, params), params.eos_token
        self.forget()
        self.vocab_size = self._bpe.vocab_size

    def forget(self) -> None:
        self._bpe = load_bpe(self._data, self._end, f"tokenizer {next(_LOADED)}")
        encode(self._bpe, ["a"])  # the kernels make their tables for the first text

    def file(self) -> bytes:
        return self._data

    def encode(self, view: View) -> Ids:
        return encode(self._bpe, pa.chunked_array([view.texts]))[0]

    def lengths(self, view: View, ids: Ids) -> I64:
        return self._bpe.byte_lengths[ids].astype(np.int64)

    def reversible(self, view: View, ids: Ids) -> bool:
        begins = np.concatenate([[0], np.cumsum(self.lengths(view, ids))])
        if begins[-1] != view.bounds[-1] - view.bounds[0]:
            return False
        offsets = begins.searchsorted(view.bounds - view.bounds[0])
        return bool(
            coming_back(self._bpe, pa.chunked_array([view.texts]), ids, offsets.astype(np.int64)).all()
        )


class Bytes(Trained):
    """A token for each of the 256 bytes; nothing is learned."""

    vocab_size = BYTES + 1

    def file(self) -> bytes:
        """BPE without merges."""
        return train(pa.chunked_array([], pa.large_string()), TokenizerParams(vocab_size=self.vocab_size))

    def encode(self, view: View) -> Ids:
        return _data(view).astype(np.uint16) + np.uint16(END + 1)

    def lengths(self, view: View, ids: Ids) -> I64:
        return np.ones(len(ids), np.int64)


class Characters(Trained):
    """The most frequent code points; of as many, the lower ones."""

    unknown = UNKNOWN

    def __init__(self, texts: pa.ChunkedArray, size: int) -> None:
        counts = np.zeros(CODE_POINTS, np.int64)
        for view in views(texts):
            counts += np.bincount(_points(view), minlength=CODE_POINTS)
        order = np.argsort(-counts, kind="stable")[: size - UNKNOWN - 1]
        known = order[counts[order] > 0]
        self._ids = np.full(CODE_POINTS, UNKNOWN, np.uint32)
        self._ids[known] = np.arange(len(known)) + UNKNOWN + 1
        self.vocab_size = len(known) + UNKNOWN + 1

    def encode(self, view: View) -> Ids:
        return self._ids[_points(view)]

    def lengths(self, view: View, ids: Ids) -> I64:
        data = _data(view)
        begins = np.flatnonzero((data & 0xC0) != 0x80)
        return np.diff(begins, append=len(data)).astype(np.int64)


class WholeWords(Trained):
    """The most frequent words, as the pre-tokenizer cuts them off: with the space before them, and spaces and signs alike."""

    unknown = UNKNOWN

    def __init__(self, texts: pa.ChunkedArray, params: TokenizerParams) -> None:
        tokenizer = untrained(params)
        content = json.loads(tokenizer.to_str())
        self._reading = reading_of(content)
        found = count_words([texts], content, tokenizer)
        order = np.argsort(-found.counts, kind="stable")[: params.vocab_size - UNKNOWN - 1].tolist()
        edges, data = found.bounds.tolist(), found.data.tobytes()
        self._known = pa.array([data[edges[i] : edges[i + 1]] for i in order], pa.large_binary())
        self.vocab_size = len(order) + UNKNOWN + 1

    def encode(self, view: View) -> Ids:
        places = pc.index_in(cut_words(view, self._reading), value_set=self._known)
        return np.asarray(pc.fill_null(places, -1).to_numpy() + (UNKNOWN + 1)).astype(np.uint32)

    def lengths(self, view: View, ids: Ids) -> I64:
        return np.asarray(pc.binary_length(cut_words(view, self._reading)).to_numpy(), np.int64)


MAKE: dict[Kind, Callable[[pa.ChunkedArray, int], Trained]] = {
    "bpe": lambda texts, size: Learned(texts, TokenizerParams(model="bpe", vocab_size=size)),
    "unigram": lambda texts, size: Learned(texts, TokenizerParams(model="unigram", vocab_size=size)),
    "wordpiece": lambda texts, size: Learned(texts, TokenizerParams(model="wordpiece", vocab_size=size)),
    "byte": lambda texts, size: Bytes(),
    "character": Characters,
    "word": lambda texts, size: WholeWords(texts, TokenizerParams(vocab_size=size)),
}


def _data(view: View) -> npt.NDArray[np.uint8]:
    return view.data[view.bounds[0] : view.bounds[-1]]


def _points(view: View) -> npt.NDArray[np.uint32]:
    return np.frombuffer(_data(view).tobytes().decode("utf-8").encode("utf-32-le"), np.uint32)
