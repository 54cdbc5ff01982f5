"""A decoder over many processes: meshes, sharding (ZeRO), tensor, expert and pipeline parallelism, and any product of
them. `ParallelModel` is what the step sees; one process is the layout in which everything is here."""

from corpusmill.train.parallel.model import ParallelModel, build

__all__ = ["ParallelModel", "build"]
