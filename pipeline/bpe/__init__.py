"""A byte-level BPE tokenizer as the stages use it: loaded and checked (`load.py`), encoding batches (`encode.py`) by kernels
(`engine.py`, `recognise.py`, `classes.py`, `texts.py`, `kernels/`) or by the library, its tokens as bytes (`byte_alphabet.py`), decoded to check the round trip (`round_trip.py`)."""
