"""Lines, paragraphs and sentence windows that occur more than once in the corpus.

`stage.find` is the door. `splice.py` holds the kernels that say what a cut takes along, for all kinds of spans.
"""
