"""Rules on lines: which lines a rule set would cut (`find.py`), what each set cuts as signals and spans (`measure.py`),
and texts without the spans, with the edits for the ledger (`edit.py`)."""
