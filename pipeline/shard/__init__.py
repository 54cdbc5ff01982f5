"""WebDataset tars of token blocks or texts per source and split: documents routed to shards by hash, then written.

`route.py` and `write.py` are the two phases, `segments.py` the files between them, `blocks.py` and `text_members.py`
the format, `read.py` and `export.py` the way back.
"""
