"""What a run measures of itself: recall on a sample and on planted near-copies, precision of what went.

`sample.py` draws, `recall.py` compares the sample with itself, `planted.py` makes copies of known similarity,
`precision.py` judges removals anew, `summary.py` puts the figures together.
"""
