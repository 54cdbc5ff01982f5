"""Encoding over Arrow's bytes: classes of characters (`characters.py`), where patterns cut (`cuts.py`),
pre-tokens already encoded (`table.py`), merging (`merge.py`) and the loop over documents (`scan.py`)."""
