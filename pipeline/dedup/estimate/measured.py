"""What the estimator multiplies by: measured on one machine by `python -m bench scale`, in `measured.json`."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from pydantic import Field

from corpusmill.common.storage import IN_FLIGHT
from corpusmill.schemas.manifest import Strict

FILE = "measured.json"


class Store(Strict):
    """Where partitions and intermediate files lie, as one worker sees it."""

    request_seconds: float = Field(ge=0, description="until the first byte of a read or the end of a write")
    bytes_per_second: float = Field(gt=0)
    at_once: int = Field(default=1, ge=1, description="reads of a task that wait together")


# Assumed, not measured: an object store in the workers' own region, and a local disk.
OBJECT_STORE = Store(request_seconds=0.03, bytes_per_second=1e8, at_once=IN_FLIGHT)
LOCAL = Store(request_seconds=1e-4, bytes_per_second=1e9)


class Measured(Strict):
    """Constants of the machine and the code."""

    machine: str
    seconds: dict[str, dict[str, float]] = Field(description="step -> unit -> CPU seconds for one of it")
    worker_bytes: float = Field(ge=0, description="of a worker that has done nothing yet")
    place_bytes: float = Field(ge=0, description="of a slice in the result of a task")
    slice_bytes: float = Field(
        ge=0, description="of a slice that the driver holds for the step that reads it"
    )
    routing_bytes: float = Field(ge=0, description="more, while slices are sorted and sent to that step")
    done_bytes: float = Field(
        ge=0, description="of the result of a task on the driver, its files not counted"
    )
    file_bytes: float = Field(ge=0, description="of each of its files")
    task_bytes: float = Field(ge=0, description="of a task in Dask's scheduler and client, until it is done")
    label_bytes: float = Field(ge=0, description="of a text in a verified pair, in union-find on the driver")
    dispatch_seconds: float = Field(ge=0, description="of the driver, for each task")
    background: tuple[float, ...] = Field(
        description="share of the pairs of documents of two sources that fall in each bin of Jaccard similarity"
    )
    siblings: tuple[float, ...] = Field(
        description="documents of its own source that a document has in each bin, below similarity 0.5"
    )


@lru_cache(maxsize=1)
def measured() -> Measured:
    """The constants in the package."""
    return Measured.model_validate_json((files("corpusmill.pipeline.dedup.estimate") / FILE).read_bytes())


def path() -> Path:
    """Where the bench writes them."""
    return Path(__file__).with_name(FILE)
