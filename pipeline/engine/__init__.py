"""What runs the stages: the runner and its tasks, Dask, atomic publishing, resuming, the shuffle, the layout of a run's folder."""
