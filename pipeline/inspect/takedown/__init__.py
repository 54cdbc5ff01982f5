"""Documents out of finished shards: `find.py` where they are, `rewrite.py` tars without them, `change.py` the new set
prepared, decided and put in place, `log.py` what was taken down, `cli.py` the command."""
