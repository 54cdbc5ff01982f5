"""Byte-level BPE, trained on a deterministic sample of the train split or given by the user, and measured.

`sample.py` draws the documents, `pretokenizers.py` says how text is cut, `train.py` trains; `measure.py` brings together
`held_out.py`, `origin.py`, `vocabulary.py` and `compare.py`. `pipeline/bpe` loads and encodes.
"""
