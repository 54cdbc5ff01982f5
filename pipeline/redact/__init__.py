"""Personal data and secrets: found by one pass over a batch's bytes, confirmed by validators, replaced.

`apply.py` turns documents into an outcome, `batch.py` is the loop over a batch; `kernels/` finds candidates;
`network`, `identity_numbers`, `coins`, `secrets`, `phones` and `models` decide; `pseudonyms` and `standins` replace.
"""
