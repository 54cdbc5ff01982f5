"""Documents out of finished shards and of an index of `dedup`. `run.py`: who is meant, and the takedown from its file to its report;
`rewrite.py`: tars without them; `change.py`: the new set prepared, decided and put in place; `index.py`: the index. Where
documents are: `corpusmill.pipeline.inspect.locate`."""
