"""Lines, paragraphs and sentence windows that occur more than once in the corpus.

`stage.find` is the door. `splice.py` holds the kernels that cut spans out of texts, for all kinds of spans.
"""
