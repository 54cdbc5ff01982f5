"""MosaicML streaming: MDS with a row of tokens a sample, as bytes, py1e shuffling, `StreamingDataLoader`.

Streams are mixed by `proportion`; see `loader_common` for the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

# Importing streaming imports torchvision, whose wheels want a torch with CUDA to declare these two operators.
for operator in ("nms", "qnms"):
    torch.library.define(f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float most) -> Tensor")

from loader_common import BATCH, SEED, main, tensor_of_bytes  # noqa: E402
from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402


def write(rows: dict[str, np.ndarray], folder: Path) -> None:
    for source, sequences in rows.items():
        with MDSWriter(out=str(folder / source), columns={"tokens": "bytes"}) as writer:
            for row in sequences:
                writer.write({"tokens": row.tobytes()})


def collate(samples: list[dict[str, bytes]]) -> torch.Tensor:
    return tensor_of_bytes([sample["tokens"] for sample in samples])


def batches(folder: Path, form: str, workers: int, endless: bool) -> Iterator[torch.Tensor]:
    clean_stale_shared_memory()
    sources = sorted(folder.iterdir())
    if form == "mixed":
        streams = [Stream(local=str(source), proportion=1 / len(sources)) for source in sources]
    else:
        streams = [Stream(local=str(sources[0]))]
    dataset = StreamingDataset(
        streams=streams,
        shuffle=True, shuffle_algo="py1e", shuffle_seed=SEED, batch_size=BATCH,
    )  # fmt: skip
    loader = StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, collate_fn=collate, drop_last=endless,
        persistent_workers=workers > 0,
    )  # fmt: skip
    yield from loader
    while endless:
        yield from loader


if __name__ == "__main__":
    main(write, batches)
