"""WebDataset tars of token blocks per source and split: documents routed to shards by hash, then written.

`route.py` and `write.py` are the two phases, `blocks.py` and `tar.py` the format, `read.py` and
`verify.py` the way back.
"""
