"""Validation split by duplicate cluster, and by host where asked for, so that no near-copy of it is trained on: which
documents (`choose.py`: measured, joined, chosen), and how similar the two sides are (`similarity.py`).

`pipeline/engine/document_hash.py` is what later stages read the choice with.
"""
