"""What the loader scripts share: their commands, and measuring.

python loader_X.py write ROWS FOLDER                       the rows (`<source>.npy`) in the tool's own format
python loader_X.py speed FOLDER SECONDS FORM:WORKERS ...   prints {"speeds": {FORM:WORKERS: tokens/s}, "peak_mb"}
python loader_X.py order FOLDER OUT.npy                    the first four tokens of every sequence of one epoch, `alone`

The forms: `mixed` reads two sources, half of the sequences from each; `alone` reads the first source. A batch is an
int64 tensor [BATCH, SEQUENCE + 1], of which tokens and labels are two views.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import torch

SEQUENCE, BATCH, BUFFER, SEED, WARM = 2048, 32, 1000, 1, 10
Write = Callable[[dict[str, np.ndarray], Path], None]
Batches = Callable[[Path, str, int, bool], Iterator[torch.Tensor]]


def tensor(rows: list[np.ndarray]) -> torch.Tensor:
    """Rows of uint16 as one int64 tensor: written once, and cast as it is written."""
    batch = np.empty((len(rows), SEQUENCE + 1), dtype=np.int64)
    np.stack(rows, out=batch, casting="unsafe")
    return torch.from_numpy(batch)


def tensor_of_bytes(rows: list[bytes]) -> torch.Tensor:
    """The same of rows as bytes."""
    whole = np.frombuffer(b"".join(rows), dtype=np.uint16)
    return torch.from_numpy(whole.reshape(len(rows), SEQUENCE + 1).astype(np.int64))


def peak_mb(process: int | str) -> float:
    """The highest resident memory of a process so far, 10^6 bytes. (`getrusage` would count its parent's before it.)"""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024 / 1e6


def speed(batches: Iterator[torch.Tensor], seconds: float) -> tuple[float, float]:
    """(tokens/s after some batches of warming up, the peak of this process and its workers in MB)"""
    for _ in range(WARM):
        next(batches)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        batch = next(batches)
        tokens, labels = batch[:, :-1], batch[:, 1:]
        assert tokens.dtype == labels.dtype == torch.int64 and labels.shape[1] == SEQUENCE
        count += tokens.numel()
    rate = count / (time.perf_counter() - began)
    return rate, sum(peak_mb(process) for process in ("self", *(child.pid for child in active_children())))


def main(write: Write | None, batches: Batches) -> None:
    """`write(rows by source, folder)`; `batches(folder, form, workers, endless)`: of one epoch, or without an end."""
    command, *arguments = sys.argv[1:]
    answer: dict[str, object] = {}
    if command == "write" and write:
        files = sorted(Path(arguments[0]).glob("*.npy"))
        write({file.stem: np.load(file, mmap_mode="r") for file in files}, Path(arguments[1]))
    elif command == "speed":
        folder, seconds, *configurations = arguments
        speeds, peaks = {}, []
        for name in configurations:
            form, _, workers = name.partition(":")
            speeds[name], peak = speed(batches(Path(folder), form, int(workers), True), float(seconds))
            peaks.append(peak)
        answer = {"speeds": speeds, "peak_mb": max(peaks)}
    elif command == "order":
        some = batches(Path(arguments[0]), "alone", 0, False)
        np.save(arguments[1], np.concatenate([batch[:, :4].numpy() for batch in islice(some, 10**6)]))
    else:
        sys.exit(f"no such command: {command}")
    print(json.dumps(answer))
