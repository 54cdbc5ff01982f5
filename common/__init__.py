"""What every other package stands on: storage, config reading, errors, ids, the tar format, the cache of compiled kernels.
Nothing here imports another package of CorpusMill."""
