"""The text view of a batch (`view.py`): one pass over its bytes (`scan.py`), words, repetition inside documents, kinds of lines."""
