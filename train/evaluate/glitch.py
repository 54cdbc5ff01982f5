"""Tokens that training hardly touched ("glitch tokens"): by their counts, by their rows in the embedding, and by asking the model.

Indicators are those of Land & Bartolo 2024 (arXiv 2405.05417): the norm of the input row, which weight decay shrinks where nothing
else changes it; and the cosine distance of the output row to the mean of the rows that were never a label, after the component that
all rows have in common was taken out. A token is verified by asking the model to repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.common.format import quantity
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder
from corpusmill.common.token_text import TokenText
from corpusmill.schemas.glitch import GLITCH_TOKENS, GlitchToken, GlitchTokens, Place
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.shards import Source
from corpusmill.train.evaluate.baselines import STRICT, train_counts, trained_blocks
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.parallel.mesh import join
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import TOKENIZER

if TYPE_CHECKING:
    from tokenizers import Tokenizer


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

REPEATS = (4, 8, 16)  # times that a token stands before the model is asked for it again
LEAST = 0.01  # probability from which on a token counts as repeated, as in the paper
ORDINARY = 100  # the most frequent tokens, to compare with
SUSPECTS = 50  # that are listed, the nearest ones


def glitch_tokens(
    config: TrainConfig, run: Folder, most_seen: int = 0, documents: int = 3, most_tokens: int = 2**62
) -> GlitchTokens:
    """Tokens that the newest checkpoint was trained on at most `most_seen` times; writes `evaluation/glitch-tokens.json`.

    `documents`: that are named for each token (0: none, which saves a pass over the shards). With more than `most_tokens` tokens
    trained on, counts are estimated from blocks spread evenly over them. Raises `UserError` for a run without a checkpoint, or
    whose config or data have changed.
    """
    from tokenizers import Tokenizer

    world = join(config)
    shards = open_run_data(config)
    found = newest_checkpoint(run)
    size, eos = shards.set.vocab_size, shards.set.eos_id
    sources = shards.read(config.data)
    train = np.sum(list(train_counts(sources, run).values()), axis=0)
    blocks = trained_blocks(config, run, found, shards, most_tokens)
    if isinstance(blocks, str):
        raise UserError(f"{run}: {blocks}")
    seen = np.zeros(size, dtype=np.int64)
    for block, chosen in blocks.labels:
        seen += np.bincount(block.tokens[chosen], minlength=size)
    counted, sequences = int(seen.sum()), len(blocks.drawn.sequence)
    trained = counted * max(blocks.drawn.of, sequences) // max(sequences, 1)
    if trained > counted:
        seen = np.where(seen > 0, np.maximum(seen * trained // counted, 1), 0)

    model = load_model(config, found, size, world.device)
    embedding = model.embedding.weight[:size].detach().double().cpu().numpy()
    head = None if model.head is None else model.head.weight[:size].detach().double().cpu().numpy()
    distance = distances(embedding if head is None else head, seen == 0)
    norms = np.linalg.norm(embedding, axis=1)
    head_norms = None if head is None else np.linalg.norm(head, axis=1)
    rare = np.flatnonzero(seen <= most_seen)
    near = suspects(distance, seen, most_seen)
    ordinary = np.argsort(-seen, kind="stable")[: min(ORDINARY, int((seen > most_seen).sum()))]
    listed = np.concatenate([rare, near])
    scorer = Scorer(ParallelModel([model], world), config, world)
    asked = repeated(scorer, np.concatenate([listed, ordinary]).tolist(), eos)
    places = holders(list(sources.values()), listed[train[listed] > 0], documents)

    data = (run / TOKENIZER).read()
    words, tokenizer = TokenText(data, eos, f"{run / TOKENIZER}"), Tokenizer.from_str(data.decode("utf-8"))
    rows = [
        GlitchToken(
            token=token,
            text=shown_text(words, tokenizer, token),
            reachable=reachable(words, tokenizer, token),
            train=int(train[token]),
            seen=int(seen[token]),
            input_norm=float(norms[token]),
            output_norm=None if head_norms is None else float(head_norms[token]),
            distance=None if distance is None else float(distance[token]),
            repeat=asked[token],
            repeats=asked[token] >= LEAST,
            documents=places.get(token, []),
        )
        for token in listed.tolist()
    ]
    usual = float(np.median([asked[token] for token in ordinary.tolist()])) if len(ordinary) else 0.0
    result = GlitchTokens(
        name=config.name,
        step=found.step,
        weights_hash=found.weights_xxh3,
        tokenizer_hash=checksum(data),
        tied=head is None,
        vocabulary=size,
        most_seen=most_seen,
        counted=counted,
        trained=trained,
        tokens=rows[: len(rare)],
        suspects=rows[len(rare) :],
        ordinary_repeat=usual,
        finding=finding(rows[: len(rare)], size, usual),
    )
    if world.first:
        (run / GLITCH_TOKENS).write(result.to_json())
    return result


def distances(rows: Floats, untouched: npt.NDArray[np.bool_]) -> Floats | None:
    """The cosine distance of each row [V, C] to the mean of the `untouched` ones, both without the component along the first
    singular vector of all rows; None if none is untouched."""
    if not untouched.any():
        return None
    _, vectors = np.linalg.eigh(rows.T @ rows)
    common = vectors[:, -1]
    left = rows - np.outer(rows @ common, common)
    mean = left[untouched].mean(0)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(mean)
    found: Floats = 1 - (left @ mean) / np.maximum(lengths, 1e-30)
    return found


def suspects(distance: Floats | None, seen: Ints, most_seen: int) -> Ints:
    """Tokens seen more often whose distance is that of untouched ones (their 95 % quantile or less), the nearest first."""
    if distance is None:
        return np.empty(0, dtype=np.int64)
    limit = np.quantile(distance[seen == 0], 0.95)
    near = np.flatnonzero((distance <= limit) & (seen > most_seen))
    return near[np.argsort(distance[near], kind="stable")][:SUSPECTS]


def repeated(scorer: Scorer, tokens: Sequence[int], eos: int) -> dict[int, float]:
    """Of each token the highest probability that it comes again after it has stood 4, 8 and 16 times."""
    lengths = [count for count in REPEATS if count + 1 < scorer.longest] or [max(scorer.longest - 2, 1)]
    queries = [Query([eos, *[token] * count], [token]) for token in tokens for count in lengths]
    answers = scorer.answers(queries) if queries else []
    found: dict[int, float] = {}
    for query, answer in zip(queries, answers, strict=True):
        token = query.continuation[0]
        found[token] = max(found.get(token, 0.0), float(np.exp(answer.sum)))
    return found


def holders(sources: Sequence[Source], tokens: Ints, each: int) -> dict[int, list[Place]]:
    """Up to `each` documents of the sources that hold each of some tokens, in the order of the shards."""
    left = dict.fromkeys(tokens.tolist(), each) if each else {}
    found: dict[int, list[Place]] = {}
    if not left:
        return found
    wanted = np.zeros(sources[0].index.vocab_size, dtype=np.bool_)
    wanted[list(left)] = True
    keys = [(at, number) for at, source in enumerate(sources) for number in range(len(source.blocks))]
    with closing(Blocks(sources, STRICT)) as blocks:
        for place, key in enumerate(keys):
            blocks.read_ahead(keys[place : place + 8])
            data = blocks.get([key])[key]
            hits = np.flatnonzero(wanted[data.tokens])
            if not len(hits):
                continue
            member = blocks.documents(key)
            inside = np.searchsorted(np.array(member.token_starts), hits, side="right") - 1
            pairs = dict.fromkeys(zip(data.tokens[hits].tolist(), inside.tolist(), strict=True))
            source = sources[key[0]]
            for token, document in pairs:
                if left[token]:
                    where = Place(
                        source=source.name,
                        doc_id=member.doc_ids[document],
                        block=source.blocks[key[1]][1].key,
                    )
                    if where not in found.setdefault(token, []):
                        found[token].append(where)
                        left[token] -= 1
                        wanted[token] = left[token] > 0
            if not wanted.any():
                break
    return found


def whole_text(words: TokenText, tokenizer: Tokenizer, token: int) -> str | None:
    """The text that a token stands for; None if that is no whole UTF-8."""
    if token == words.eos_id or not words.byte_level:
        return tokenizer.decode([token], skip_special_tokens=False)
    try:
        return words.bytes_of(token).decode("utf-8")
    except UnicodeDecodeError:
        return None


def shown_text(words: TokenText, tokenizer: Tokenizer, token: int) -> str:
    """The same, with bytes that are no UTF-8 escaped."""
    text = whole_text(words, tokenizer, token)
    return words.bytes_of(token).decode("utf-8", "backslashreplace") if text is None else text


def reachable(words: TokenText, tokenizer: Tokenizer, token: int) -> bool:
    """Whether the tokenizer encodes the token's text as this token. Of one that stands only inside words this cannot be asked, and
    it is taken to be."""
    if words.within_words(token):
        return True
    text = whole_text(words, tokenizer, token)
    return bool(text) and tokenizer.encode(str(text), add_special_tokens=False).ids == [token]


def finding(rows: Sequence[GlitchToken], size: int, ordinary: float) -> str:
    """What was found, in words."""
    never = sum(row.seen == 0 for row in rows)
    words = f"{quantity(len(rows), 'token')} of {size:,} listed, {never:,} of them never trained on"
    if ordinary < LEAST:
        return f"{words}; the model does not repeat ordinary tokens either, so asking it verifies nothing"
    verified = sum(not row.repeats for row in rows)
    return f"{words}; the model cannot repeat {verified:,} (ordinary tokens: probability {ordinary:.2f})"
