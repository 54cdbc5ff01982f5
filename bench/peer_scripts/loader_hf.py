"""Hugging Face datasets, streaming from local Arrow files with a row of tokens a sample, as bytes, shuffle buffer.

One source is read a batch of Arrow at a time, which is what its documentation calls fast; a mixture by
`interleave_datasets` gives examples. See `loader_common` for the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import interleave_datasets, load_dataset
from loader_common import BATCH, BUFFER, SEED, main, tensor_of_bytes
from torch.utils.data import DataLoader

FILES, RECORDS = 8, 1000  # files of a source, rows of a record batch


def write(rows: dict[str, np.ndarray], folder: Path) -> None:
    for source, sequences in rows.items():
        (folder / source).mkdir()
        for number, part in enumerate(np.array_split(sequences, FILES)):
            column = pa.array([row.tobytes() for row in part], pa.binary())
            table = pa.table({"tokens": column})
            with pa.ipc.new_stream(str(folder / source / f"{number}.arrow"), table.schema) as writer:
                writer.write_table(table, max_chunksize=RECORDS)


def of_examples(examples: list[dict[str, bytes]]) -> torch.Tensor:
    return tensor_of_bytes([example["tokens"] for example in examples])


def of_table(table: pa.Table) -> torch.Tensor:
    return tensor_of_bytes([value.as_buffer() for value in table["tokens"]])


def batches(folder: Path, form: str, workers: int, endless: bool) -> Iterator[torch.Tensor]:
    def stream(files: list[Path]) -> Any:
        return load_dataset("arrow", data_files=list(map(str, files)), split="train", streaming=True)

    parts = [stream(sorted(source.iterdir())) for source in sorted(folder.iterdir())]
    if form == "mixed":
        dataset = interleave_datasets(
            parts, probabilities=[1 / len(parts)] * len(parts), seed=SEED, stopping_strategy="all_exhausted"
        )
    else:
        dataset = parts[0]
    dataset = dataset.shuffle(seed=SEED, buffer_size=BUFFER)
    epoch = 0
    while endless or epoch == 0:
        dataset.set_epoch(epoch)
        epoch += 1
        if workers:
            yield from DataLoader(
                dataset, batch_size=BATCH, num_workers=workers, collate_fn=of_examples, drop_last=endless
            )
        elif form == "alone":
            for table in dataset.with_format("arrow").iter(BATCH, drop_last_batch=endless):
                yield of_table(table)
        else:
            for examples in dataset.iter(BATCH, drop_last_batch=endless):
                yield tensor_of_bytes(examples["tokens"])


if __name__ == "__main__":
    main(write, batches)
