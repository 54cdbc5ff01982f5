"""The thread from a token back to its source, and from a document to its tokens: `trace.py` and `find.py`. `edits.py` maps
positions through the stages, `ids.py` finds a document's partition, `shards.py` reads one block, `raw.py` the source."""
