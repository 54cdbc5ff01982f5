"""A byte-level BPE tokenizer as the stages use it: loaded and checked (`load.py`), encoding batches (`encode.py`), its
tokens as bytes (`names.py`)."""
