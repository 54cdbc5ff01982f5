"""The Gopher, C4 and FineWeb rules as four tools read them: signals measured only for a rule set that asks for them,
one file per tool (`datatrove.py`, `dolma.py`, `dclm.py`, `nemo.py`), and the kernels that they share."""
