"""From a token back to its source (`trace.py`), and from a document to its tokens (`find.py`). `edits.py` maps positions through
the stages, `ids.py` finds a document's partition, `shards.py` reads one block, `raw.py` the source."""
