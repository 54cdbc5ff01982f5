"""The unigram model: token frequencies of the train split, add-one smoothed. What a model must clearly beat."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpusmill.common.storage import Folder
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.manifest import hash_json
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.shards import Source


def counts(source: Source) -> npt.NDArray[np.int64]:
    """Occurrences of each token id in a split, int64 [vocab_size]."""
    total = np.zeros(source.index.vocab_size, dtype=np.int64)
    last = len(source.blocks)
    blocks = Blocks([source], FetchConfig(memory_mb=64, bad_blocks=0))
    try:
        for number in range(last):
            blocks.read_ahead((0, ahead) for ahead in range(number, min(number + 8, last)))
            total += np.bincount(blocks.get([(0, number)])[0, number].tokens, minlength=len(total))
    finally:
        blocks.close()
    return total


def train_counts(sources: dict[str, Source], run: Folder | None = None) -> dict[str, npt.NDArray[np.int64]]:
    """`counts` of each source's train split; kept in the run's folder until the shards are others."""
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


def losses(train: npt.NDArray[np.int64], scored: npt.NDArray[np.int64]) -> float:
    """Sum of losses in nats of the tokens counted in `scored`, under add-one smoothed frequencies of `train`."""
    smoothed = train + 1
    return float(-(scored * (np.log(smoothed) - np.log(smoothed.sum()))).sum())
