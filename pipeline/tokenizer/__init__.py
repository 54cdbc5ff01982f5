"""Byte-level BPE, trained on a deterministic sample of the train split or given by the user, and measured.

`sample.py` draws the documents, `train.py` cuts text and trains; `measure.py` writes `stats.json`, with `merge_origins.py`
and `vocabulary.py`. `pipeline/bpe` loads and encodes.
"""
