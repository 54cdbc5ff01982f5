"""Texts of random words, and jobs over partitions that a test publishes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding, banding
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.engine.shuffle import Done, Records, once, write
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams


def job_of(folder: Folder, bands: Banding | None = None, **params: Any) -> Job:
    """A job whose scratch lies in `folder`."""
    asked = DedupParams(**params)
    return Job(folder / "scratch", asked, bands or banding(asked), 1, 1, (), 0.0, "key")


def shingling_of(job: Job) -> Shingling:
    return Shingling(job.params, job.banding.bands * job.banding.rows)


def map_for(job: Job) -> Callable[..., list[Done]]:
    """Runs steps here, one after the other, as the stage does on its scheduler."""

    def run(step: Any, items: Sequence[Any], label: str) -> list[Done]:
        return [step(job, item) for item in items]

    return run


def publish_sets(job: Job, index: int, texts: Sequence[str]) -> Records:
    """What the exact check stores of a partition's texts; the nodes."""
    array = pa.array(texts, pa.large_string())
    bounds, hashes = shingling_of(job).sets(array, np.arange(len(texts)))
    nodes = np.zeros(len(texts), job.node)
    nodes["location"] = (index << 32) + np.arange(len(texts))
    nodes["hi"] = np.arange(len(texts)) + 1000 * index
    nodes["start"], nodes["size"] = bounds[:-1], np.diff(bounds)
    nodes["shingles"] = nodes["size"]
    running = np.r_[np.uint64(0), np.cumsum(hashes, dtype=np.uint64)]
    nodes["sum"] = running[bounds[1:]] - running[bounds[:-1]]
    name = f"sets/{index:06d}"
    files = {
        "nodes": write(job.work, f"{name}.nodes", nodes),
        "sets": write(job.work, f"{name}.sets", hashes),
    }
    once(job.work, name, "", lambda: Done(key="", files=files))
    return nodes


def made_up(generator: random.Random, count: int) -> list[str]:
    """Words, hardly ever the same twice."""
    return ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(count)]


def replaced(generator: random.Random, text: str, edits: int) -> str:
    """The text with `edits` words replaced, at even distances."""
    found = text.split()
    for i in range(edits):
        found[(2 * i + 1) * len(found) // (2 * edits)] = made_up(generator, 1)[0]
    return " ".join(found)
