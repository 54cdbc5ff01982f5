"""Byte-level BPE, trained on a deterministic sample of the train split, and measured on what it did not see.

`sample.py` chooses the documents, `train.py` trains, `measure.py` measures; `pipeline/bpe` loads and encodes.
"""
