"""WebDataset tars of token blocks or texts per source and split: documents routed to shards by hash, then written.

`write.py` holds the two phases, `segments.py` the files between them, `text_members.py` the format of text shards, `plan.py` the
sets and their indexes, `read.py` and `export.py` the way back.
"""
