"""webdataset on the tars of the shard set: only the tokens of a sample are unpacked, cut to sequences, shuffle buffer.

Tars are resampled without an end, as its documentation recommends for training; see `loader_common` for the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds
from loader_common import BATCH, BUFFER, SEED, SEQUENCE, main, tensor


def cut(samples: Iterator[dict[str, Any]]) -> Iterator[np.ndarray]:
    for sample in samples:
        tokens = sample["tokens.npy"]
        for start in range(0, len(tokens) - SEQUENCE, SEQUENCE):
            yield tokens[start : start + SEQUENCE + 1]


def only_tokens(name: str) -> bool:
    return name.endswith(".tokens.npy")


def sequences(tars: list[Path], endless: bool) -> Any:
    """Sequences of these tars, in the order in which they lie."""
    shuffled = False if endless else len(tars)  # resampling takes tars by chance already
    source = wds.WebDataset(
        list(map(str, tars)), resampled=endless, shardshuffle=shuffled, seed=SEED, select_files=only_tokens
    )
    return source.decode().compose(cut)


def batches(folder: Path, form: str, workers: int, endless: bool) -> Iterator[torch.Tensor]:
    sources = sorted(folder.glob("*/train"))
    parts = [sequences(sorted(source.glob("*.tar")), endless) for source in sources]
    read = wds.RandomMix(parts, [1 / len(parts)] * len(parts)) if form == "mixed" else parts[0]
    dataset = wds.DataPipeline(
        read, wds.shuffle(BUFFER, seed=SEED), wds.batched(BATCH, collation_fn=tensor, partial=not endless)
    )
    return iter(wds.WebLoader(dataset, batch_size=None, num_workers=workers))


if __name__ == "__main__":
    main(None, batches)
