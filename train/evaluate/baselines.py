"""What `evaluate` shows beside a model: unigram models, and n-gram models of the tokens that the run was trained on and of all
train tokens (`corpusmill.train.evaluate.ngrams`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.errors import UserError
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.manifest import hash_json
from corpusmill.train.data.pack import unscored
from corpusmill.train.data.plan import difference, past
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.trained import Drawn, drawn, read, spread, trained_on
from corpusmill.train.evaluate.ngrams import NGrams, events
from corpusmill.train.guard.journal import amended, read_entries, skipped

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.checkpoint import Checkpoint
    from corpusmill.train.data.fetch import BlockData
    from corpusmill.train.data.shards import Shards, Source

# No substitutes for damaged blocks: the score would be that of other tokens.
STRICT = FetchConfig(memory_mb=64, bad_blocks=0)
NGRAM_TOKENS = 10_000_000  # that an n-gram model counts at most: some 400 MB, and seconds


def all_blocks(source: Source) -> Iterator[BlockData]:
    """The blocks of a split in their order. Raises `WorkError` for a damaged one."""
    return read([source], [(0, number) for number in range(len(source.blocks))], STRICT)


class Counted(NamedTuple):
    """An n-gram model, and of how many tokens it counted a part, if not all (`model.tokens`)."""

    model: NGrams
    of: int


class Baselines:
    """The models beside that of a checkpoint. `ngram_tokens`: that an n-gram model counts at most (0: no such models)."""

    def __init__(
        self, config: TrainConfig, run: Folder, found: Checkpoint, shards: Shards, ngram_tokens: int
    ) -> None:
        read_from = shards.read(config.data)
        self._counts = train_counts(read_from, run)
        self._ngrams: dict[str, Counted | str] = {}
        if ngram_tokens:
            self._ngrams["trained_on"] = of_trained(config, run, found, shards, ngram_tokens)
            size, eos = shards.set.vocab_size, shards.set.eos_id
            self._ngrams["all"] = of_all(read_from, size, eos, ngram_tokens)

    def losses(self, source: Source) -> dict[str, float]:
        """Sums of the losses of every token of a split, in nats: `unigram`, `unigram_source` if the source is read,
        `bigram trained_on` and so on."""
        scored = counts(source)
        found = {"unigram": unigram_losses(np.sum(list(self._counts.values()), axis=0), scored)}
        if source.name in self._counts:
            found["unigram_source"] = unigram_losses(self._counts[source.name], scored)
        for which, counted in self._ngrams.items():
            if isinstance(counted, Counted):
                total = np.zeros(2)
                for block in all_blocks(source):
                    total += counted.model.losses(events(block, source.index.eos_id, ~unscored(block)))
                found |= {f"bigram {which}": float(total[0]), f"trigram {which}": float(total[1])}
        return found

    def described(self) -> dict[str, Any]:
        """Of each n-gram model: the tokens that it counted, and of how many; or why there is none."""
        return {
            which: {"tokens": 0, "of": 0, "missing": counted}
            if isinstance(counted, str)
            else {"tokens": counted.model.tokens, "of": counted.of}
            for which, counted in self._ngrams.items()
        }


def of_all(sources: dict[str, Source], vocab_size: int, eos: int, most: int) -> Counted:
    """The model of all labels of these splits, or of blocks spread evenly over them, with `most` tokens together."""
    read_from = list(sources.values())
    keys = [(at, number) for at, source in enumerate(read_from) for number in range(len(source.blocks))]
    sizes = np.array([read_from[at].blocks[number][1].ntokens for at, number in keys], dtype=np.int64)
    chosen = spread(sizes, most)
    blocks = read(read_from, [keys[at] for at in chosen.tolist()], STRICT)
    parts = (events(block, eos, ~unscored(block)) for block in blocks)
    return Counted(NGrams(parts, int(sizes[chosen].sum()), vocab_size), int(sizes.sum()))


class TrainedBlocks(NamedTuple):
    """What a run was trained on: the sequences, the tokens of one, and each block with which of its tokens were labels."""

    drawn: Drawn
    length: int
    labels: Iterator[tuple[BlockData, npt.NDArray[np.bool_]]]


def trained_blocks(
    config: TrainConfig, run: Folder, found: Checkpoint, shards: Shards, most: int
) -> TrainedBlocks | str:
    """The blocks that the run was trained on up to a checkpoint, without the data of steps that the guard skipped or rolled back; or
    why they are not known. With more than `most` tokens: blocks spread evenly over them."""
    entries = read_entries(run)
    try:
        plan = make_plan(amended(config.data, entries), shards, config.seed)
    except UserError as error:
        return str(error)
    made = found.state["loader"]["made_of"]
    changes = difference(past(made, found.step), past(plan.as_json(), found.step))
    if changes:
        return f"the run was trained on other data: {'; '.join(changes)}"
    taken = drawn(plan, found.step, skipped(entries), most)
    sources = [shards.train[source.name] for source in plan.sources]
    return TrainedBlocks(taken, plan.sequence_length, trained_on(plan, sources, taken, config.data.fetch))


def of_trained(
    config: TrainConfig, run: Folder, found: Checkpoint, shards: Shards, most: int
) -> Counted | str:
    """The model of the tokens that the run was trained on up to a checkpoint, each counted once; or why there is none."""
    blocks = trained_blocks(config, run, found, shards, most)
    if isinstance(blocks, str):
        return blocks
    taken, length = blocks.drawn, blocks.length
    parts = (events(block, shards.set.eos_id, chosen) for block, chosen in blocks.labels)
    count = len(taken.sequence)
    model = NGrams(parts, count * length, shards.set.vocab_size)
    # Rows of several lengths may have been packed from the same tokens, which count once.
    return Counted(model, model.tokens if count == taken.of else taken.of * length)


def counts(source: Source) -> npt.NDArray[np.int64]:
    """Occurrences of each token id among the labels of a split, int64 [vocab_size]."""
    total = np.zeros(source.index.vocab_size, dtype=np.int64)
    for block in all_blocks(source):
        total += np.bincount(block.tokens[~unscored(block)], minlength=len(total))
    return total


def train_counts(sources: dict[str, Source], run: Folder | None = None) -> dict[str, npt.NDArray[np.int64]]:
    """`counts` of each source's train split; kept in the run's folder until the shards change."""
    from safetensors.numpy import load, save

    key = hash_json({name: source.xxh3 for name, source in sources.items()})
    file = run / f"unigram-{key[:16]}.safetensors" if run else None
    if file and file.exists():
        found: dict[str, npt.NDArray[np.int64]] = load(file.read())
        return found
    result = {name: counts(source) for name, source in sources.items()}
    if file:
        file.write(save(result))
    return result


def unigram_losses(train: npt.NDArray[np.int64], scored: npt.NDArray[np.int64]) -> float:
    """Sum of losses in nats of the tokens counted in `scored`, under add-one smoothed frequencies of `train`."""
    smoothed = train + 1
    return float(-(scored * (np.log(smoothed) - np.log(smoothed.sum()))).sum())
