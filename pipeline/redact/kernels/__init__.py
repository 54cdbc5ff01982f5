"""One pass over a batch's bytes that yields the few candidates: `candidates.py` is the loop, `digit_groups.py` judges
groups of digits, `tokens.py` words with digits, `around.py` what surrounds `@`, `:`, `=`, `-` and `_`."""
