"""What a deduplication will cost and find, before it runs.

`corpus.py` describes a corpus, `pilot.py` makes the description from a look at real partitions, `model.py`
turns it into tasks, bytes, requests, memory and time, and `plan_text.py` prints that.
"""
