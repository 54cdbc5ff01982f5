"""Deduplication: exact by text hash, near-copies by MinHash LSH with every pair checked by exact Jaccard.

`stage.py` is the runner's door, `run.py` the order of the work; a module each for what one task does.
"""
