"""Lines, paragraphs and sentence windows that occur more than once in the corpus.

`line_deduplication.find` is the entry point. `../span_edges.py` decides which white space goes with a cut, for all kinds of spans.
"""
