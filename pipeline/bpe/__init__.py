"""A byte-level BPE tokenizer as the stages use it: loaded and checked (`load.py`), encoding batches and checking that they come
back (`encode.py`), by kernels (`engine.py`, `recognise.py`, `classes.py`, `texts.py`, `kernels/`) or by the library."""
