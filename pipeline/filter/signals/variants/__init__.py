"""The Gopher, C4 and FineWeb rules as four tools read them: signals measured only for a rule set that asks for them
(`datatrove.py`; `gopher_tools.py` for Dolma, DCLM and NeMo Curator), and the kernels that they share."""
