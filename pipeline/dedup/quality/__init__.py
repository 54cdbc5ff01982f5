"""What a run measures of itself: recall on a sample and on planted near-copies, precision of what went.

`recall.py` draws a sample and compares it with itself, `planted.py` makes copies of known similarity,
`precision.py` judges removals again by other means, `summary.py` puts the figures together.
"""
