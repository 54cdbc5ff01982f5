"""A decoder over many processes: the mesh, sharding (ZeRO), tensor, expert and pipeline parallelism, and any product of
them. `model.ParallelModel` is what the step sees; one process is the layout in which everything is here."""
