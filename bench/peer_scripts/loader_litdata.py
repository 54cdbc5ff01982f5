"""litdata: chunks of tokens by `optimize` with `TokensLoader`, read in blocks of a sequence and its last label, shuffled.

Sources are mixed by `CombinedStreamingDataset`; see `loader_common` for the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset, TokensLoader, optimize
from loader_common import BATCH, SEED, SEQUENCE, main, tensor

ROWS = 255  # of an item: those of one of our blocks
CHUNK = (SEQUENCE + 1) * ROWS * 32  # tokens: 33 MB


def items(file: Path, start: int) -> torch.Tensor:
    return torch.from_numpy(np.load(file, mmap_mode="r")[start : start + ROWS].reshape(-1).copy())


def write(rows: dict[str, np.ndarray], folder: Path) -> None:
    for source, sequences in rows.items():
        optimize(
            fn=partial(items, Path(str(sequences.filename))), inputs=list(range(0, len(sequences), ROWS)),
            output_dir=str(folder / source), chunk_size=CHUNK, item_loader=TokensLoader(), num_workers=1,
        )  # fmt: skip


def collate(rows: list[torch.Tensor]) -> torch.Tensor:
    return tensor([row.numpy() for row in rows])


def batches(folder: Path, form: str, workers: int, endless: bool) -> Iterator[torch.Tensor]:
    # By default only 256 items that follow each other are shuffled: 0 shuffles all of a chunk.
    shuffled = {"shuffle": True, "seed": SEED, "item_shuffle_window": 0}
    parts = [
        StreamingDataset(str(source), item_loader=TokensLoader(SEQUENCE + 1), drop_last=endless, **shuffled)
        for source in sorted(folder.iterdir())
    ]
    if form == "mixed":
        weights = [1 / len(parts)] * len(parts)
        dataset = CombinedStreamingDataset(parts, seed=SEED, weights=weights, iterate_over_all=False)
    else:
        dataset = parts[0]
    loader = StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, collate_fn=collate, drop_last=endless,
        persistent_workers=workers > 0,
    )  # fmt: skip
    yield from loader
    while endless:
        yield from loader


if __name__ == "__main__":
    main(write, batches)
