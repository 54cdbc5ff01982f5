"""Signals: what is measured on a document, each a small function with a spec (`registry.py`), one file per family.
`catalogue.py` knows all of them. `datatrove.py` and `gopher_tools.py` (Dolma, DCLM, NeMo Curator) hold the Gopher, C4 and
FineWeb rules as four tools read them, measured only for a rule that looks at them."""
