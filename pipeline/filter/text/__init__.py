"""The text view of a batch: one pass over its bytes (`scan.py`), repetition inside documents, Unicode classes.
`view.py` is the door."""
