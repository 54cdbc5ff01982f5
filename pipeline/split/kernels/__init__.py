"""Numba kernels of the split: `overlap.py` counts the shingles that documents of train share with those of validation."""
