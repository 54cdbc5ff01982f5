"""Validation split by duplicate cluster, so that no near-copy of a validation document is trained on.

`choose.py` picks the groups; `pipeline/splits.py` is what later stages read them with.
"""
