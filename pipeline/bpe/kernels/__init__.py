"""Encoding over Arrow's bytes: buffers (`buffers.py`), where patterns cut (`pretokenize.py`),
pre-tokens already encoded (`table.py`), merging (`merge.py`) and the loop over documents (`scan.py`)."""
