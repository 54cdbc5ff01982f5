"""From Arrow texts to signatures and shingle sets: Numba kernels, the word rule, the presets.

`shingling.py` is the door: what the rest of the stage knows of shingles.
"""
