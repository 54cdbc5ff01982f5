"""WebDataset tars of token blocks or texts per source and split: documents routed to shards by hash, then written.

`route.py` and `write.py` are the two phases, `scratch.py` and `merge.py` what lies between them, `blocks.py`, `texts.py`
and `tar.py` the format, `read.py`, `verify/`, `takedown/` and `export/` the way back.
"""
