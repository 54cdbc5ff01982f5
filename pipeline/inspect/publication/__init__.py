"""`corpusmill publish`: `finished.py` the run and what refuses it, `destination.py` the folder, `documents.py`, `ledger.py`, `copies.py`
and `accounts.py` what goes into it, `croissant.py` its metadata, `publish.py` all of it in order, `check.py` and `push.py` afterwards."""
