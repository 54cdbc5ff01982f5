"""Deduplication: exact by text hash, near-copies by MinHash LSH with every pair checked by exact Jaccard.

`stage.py` is what the runner calls, `deduplication.py` the order of the steps; each step has a module of its own.
"""
