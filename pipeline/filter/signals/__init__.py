"""Signals: what is measured on a document, each a small function with a spec (`registry.py`), one file per family.
`catalogue.py` knows all of them."""
