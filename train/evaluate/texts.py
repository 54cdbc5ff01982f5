"""Bits per byte of texts of one's own, document by document: `corpusmill perplexity`.

A document begins after the end-of-text token, as in training. One that is longer than the window is scored in several: each scores
`stride` tokens and sees those before them, as many as the window holds. With a stride as long as the window, windows do not
overlap, and figures are those of lm-evaluation-harness (`loglikelihood_rolling`), whose last window reaches back, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import library
from corpusmill.schemas.evaluation import TEXTS, TextResults, TextSet
from corpusmill.train.data.shards import run_vocabulary
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.statistics import bootstrap, estimate
from corpusmill.train.evaluate.tasks.data import read_rows
from corpusmill.train.evaluate.tasks.encode import Encoder
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import TOKENIZER

if TYPE_CHECKING:
    import numpy.typing as npt

    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig

PART = 256  # documents that are scored together


def evaluate_texts(
    config: TrainConfig, run: Folder, files: Sequence[str], *, stride: int | None = None, column: str = "text",
    eos: bool = False, rows: int = 16,
) -> TextResults:  # fmt: skip
    """Score each file as a set by itself with the newest checkpoint, and write `evaluation/texts.json`.

    `files`: JSONL, JSON, CSV or TSV with the texts in `column`, each also .gz; or .txt, a file being one document. `stride`: tokens
    that a window scores (None: all of it); `eos`: score the end of each text, too. Raises `UserError` for a stride out of range,
    and for a file without texts.
    """
    longest = config.data.sequence_length
    stride = longest if stride is None else stride
    if not 1 <= stride <= longest:
        raise UserError(f"--stride {stride}: must be 1 to {longest}, the length of the training's sequences")
    named: dict[str, str] = {}
    for file in files:
        name = file.rstrip("/").rpartition("/")[2]
        if name in named:
            raise UserError(f"{file}: another file has this name; give one of them another one")
        named[name] = file
    kept, found = run_vocabulary(config, run), newest_checkpoint(run)
    world = join(config)
    encoder = Encoder(library((run / TOKENIZER).read(), str(run / TOKENIZER)), kept.eos_id)
    decoder = load_model(config, found, kept.vocab_size, world.device)
    scorer = Scorer(ParallelModel([decoder], world), config, world)
    sets = {
        name: score_set(name, file, column, encoder, scorer, stride, eos, rows)
        for name, file in named.items()
    }
    result = TextResults(
        name=config.name, step=found.step, weights_hash=found.weights_xxh3, precision=config.precision, window=longest,
        stride=stride, eos_scored=eos, sets=sets,
    )  # fmt: skip
    if world.first:
        (run / TEXTS).write(result.to_json())
    return result


def score_set(
    name: str, file: str, column: str, encoder: Encoder, scorer: Scorer, stride: int, eos: bool, rows: int
) -> TextSet:
    """The figures of one file."""
    read = documents(file, column)
    texts = [text for text in read.texts if text]
    if not texts:
        raise UserError(f"{file}: has no text in a column '{column}'; name another one: --column")
    parts = []
    for start in range(0, len(texts), PART):
        parts.append(totals(texts[start : start + PART], encoder, scorer, stride, eos, rows))
    table = np.concatenate(parts)
    nats, tokens, size, words = table.sum(0).tolist()

    def bits(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return sums[:, 0] / sums[:, 2] / math.log(2)

    return TextSet(
        name=name, hash=read.hash, documents=len(texts), tokens=int(tokens), bytes=int(size),
        bits_per_byte=bootstrap(bits, table), document_mean=estimate(bits(table).tolist()),
        token_perplexity=math.exp(min(nats / tokens, 700.0)), word_perplexity=math.exp(min(nats / max(words, 1), 700.0)),
        skipped={reason: count for reason, count in read.skipped.items() if count},
    )  # fmt: skip


class Documents(NamedTuple):
    """Texts of a file, rows without one by reason, and the hash of its bytes."""

    texts: list[str]
    skipped: dict[str, int]
    hash: str


def documents(file: str, column: str) -> Documents:
    """The texts of a file. Raises `UserError` if it cannot be read."""
    plain = file.lower().removesuffix(".gz").endswith(".txt")
    read = read_rows([file], whole_texts=plain)
    skipped = dict(read.skipped)
    texts = []
    for row in read.rows:
        text: Any = row.columns.get("text" if plain else column)
        if isinstance(text, str) and text:
            texts.append(text)
        else:
            reason = f"no text in a column '{column}'"
            skipped[reason] = skipped.get(reason, 0) + 1
    return Documents(texts, skipped, read.hash)


def totals(
    texts: Sequence[str], encoder: Encoder, scorer: Scorer, stride: int, eos: bool, rows: int
) -> npt.NDArray[np.float64]:
    """Of each text the loss in nats, and its tokens, bytes and words; [texts, 4]."""
    ids = encoder.ids(texts)
    queries, owners = list[Query](), list[int]()
    for number, text in enumerate(texts):
        tokens = [*ids[text], *([encoder.eos_id] if eos else [])]
        for query in windows(tokens, encoder.eos_id, scorer.longest, stride):
            queries.append(query)
            owners.append(number)
    table = np.zeros((len(texts), 4))
    for owner, answer in zip(owners, scorer.answers(queries, rows), strict=True):
        table[owner, 0] -= answer.sum
    table[:, 1] = [len(ids[text]) for text in texts]
    table[:, 2] = [len(text.encode()) for text in texts]
    table[:, 3] = [len(text.split()) for text in texts]
    return table


def windows(tokens: Sequence[int], start: int, longest: int, stride: int) -> Iterator[Query]:
    """Queries that score every token once: the first window all that it holds, each later one the next `stride` tokens, after as
    many as it has place for. `start`: the token before the text."""
    before = [start, *tokens]  # before[i] is what stands before tokens[i]
    done = 0
    while done < len(tokens):
        end = min(done + (longest if done == 0 else stride), len(tokens))
        first = max(0, end - longest)  # of the inputs, of which there are at most `longest`
        yield Query(before[first : done + 1], list(tokens[done:end]))
        done = end
