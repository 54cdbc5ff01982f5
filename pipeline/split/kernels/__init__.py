"""Numba kernels of the split: `overlap.py` counts the shingles that documents of train share with those of validation."""

from pathlib import Path

from corpusmill.pipeline.compiled import forget_stale

_room = Path(__file__).parent
forget_stale([_room], [_room])
