"""Personal data and secrets: found by pattern over a whole batch, confirmed by validators, replaced.

`batch.py` is the loop over a batch; `network`, `numbers` and `secrets` find; `pseudonyms` replaces.
"""
