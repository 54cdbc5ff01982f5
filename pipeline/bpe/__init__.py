"""A byte-level tokenizer as the stages use it: loaded and checked (`load.py`), encoding batches and checking that they come back
(`encode.py`); BPE by kernels (`engine.py`, `recognise.py`, `classes.py`, `texts.py`, `kernels/`), all else by the library."""
